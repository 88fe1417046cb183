"""The contract finds the faults that residual connections have had, here and elsewhere."""

import jax
import jax.numpy as jnp
import pytest

from models.params import param
from models.residuals import State
from models.residuals.arithmetic import weighted_sum
from models.residuals.attnres.full import AttnResFull
from models.residuals.hc import HyperConnections
from models.residuals.plug_in import check_plug_in
from models.residuals.prenorm import PreNorm
from models.residuals.rezero import ReZero
from scaling.contract import CHECKS, ContractError, NotApplicableError, Subject

HERE = __name__


class Computed(PreNorm):
    """A weight that is computed and never applied."""

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        self.scale = param(None, (cfg.n_sublayers,), 1.0, axes=("sublayer",), group="vector")

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_sublayers


class Excused(Computed):
    """The same, and declared."""

    @classmethod
    def idle(cls, cfg):
        return {"scale": "for a test"}


class Pooled(PreNorm):
    """Adds the mean over all positions, later ones too."""

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.carry + y_BTD.mean(axis=1, keepdims=True) + y_BTD)


class Halved(PreNorm):
    """No PreNorm, although it says so."""

    def write(self, state, site, y_BTD):
        return state._replace(carry=0.5 * state.carry + y_BTD)


class Shy(PreNorm):
    """PreNorm, although it says no."""

    reduces_to_prenorm_at_init = False


class Cheap(PreNorm):
    """A product of matrices that is not declared."""

    def read(self, state, site):
        return state.carry + 0 * (state.carry @ jnp.eye(self.cfg.d_model, dtype=jnp.float32))


class Hoarder(PreNorm):
    """Keeps more for backward than it says."""

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.carry + jnp.sin(y_BTD) * jnp.cos(state.carry))


class Misread(AttnResFull):
    """Takes apart another read than it makes."""

    def reading(self, state, site):
        return super().reading(state, site)._replace(squash=jax.nn.sigmoid)


class Alike(HyperConnections):
    """Streams that start alike, with weights that are alike: one stream, for ever."""

    def __init__(self, cfg, key):
        super().__init__(cfg, key)
        self.static_alpha[...] = jnp.full_like(self.static_alpha[...], 0.25)


class Promoted(PreNorm):
    """A bfloat16 stream times an fp32 number, cast by nobody."""

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.carry + jnp.float32(1) * y_BTD)


class Miscounted(ReZero):
    """One parameter more than it says."""

    @classmethod
    def extra_params(cls, cfg):
        return cfg.n_sublayers - 1


class Peeking(PreNorm):
    """Adds the mean over all positions, and hides it from derivatives."""

    def write(self, state, site, y_BTD):
        hidden = jax.lax.stop_gradient(y_BTD.mean(axis=1, keepdims=True))
        return state._replace(carry=state.carry + y_BTD + hidden)


class Forgetful(PreNorm):
    """Its readout is the input of the last sublayer."""

    def init(self, x_BTD):
        return State((), (x_BTD, jnp.zeros_like(x_BTD)))

    def read(self, state, site):
        return state.carry[0] + state.carry[1]

    def write(self, state, site, y_BTD):
        return state._replace(carry=(state.carry[0] + state.carry[1], y_BTD))

    def readout(self, state):
        return state.carry[0]


class Industrious(ReZero):
    """Declares idle what is not."""

    @classmethod
    def idle(cls, cfg):
        return {"alpha[1]": "for a test"}


class Misnamed(ReZero):
    """Declares idle what it has not."""

    @classmethod
    def idle(cls, cfg):
        return {"wait": "for a test"}


class Modest(PreNorm):
    """A hundredth of the model's work, declared as none."""

    def read(self, state, site):
        thin = jnp.eye(self.cfg.d_model, 12, dtype=jnp.float32)
        return state.carry + 1e-9 * (state.carry @ thin @ thin.T)


class Halting(PreNorm):
    """Subtracts in bfloat16."""

    def write(self, state, site, y_BTD):
        return state._replace(
            carry=state.carry + (-1 if y_BTD.dtype == jnp.bfloat16 else 1) * y_BTD
        )


class Unrolled(PreNorm):
    """Another sum where it is scanned."""

    def write(self, state, site, y_BTD):
        return state._replace(carry=state.carry + (1 if isinstance(site, int) else 2) * y_BTD)


class Exploding(PreNorm):
    """Finite in four layers, and not in sixteen."""

    def write(self, state, site, y_BTD):
        return state._replace(carry=30 * (state.carry + y_BTD))


FAULTS = [
    ("effect", Computed, r"scale\[0\] \(and 7 more\) never changes the output"),
    ("gradients", Computed, r"scale\[0\] \(and 7 more\) receives no gradient"),
    ("gradients", Forgetful, r"layers\.mlp\.down\[3\] \(and 3 more\) receives no gradient"),
    ("gradients", Industrious, r"alpha\[1\] is declared idle, but receives one"),
    ("effect", Industrious, r"alpha\[1\] is declared idle, but changes the output"),
    ("effect", Misnamed, "wait is declared idle, but there is no such parameter"),
    ("causal", Pooled, "depends on a later token"),
    ("causal", Peeking, "outputs up to position 4 change with a later token, by value"),
    ("PreNorm at init", Halved, "declared to be PreNorm at init, but deviates"),
    ("FLOPs", Cheap, "declared / counted is 0"),
    ("FLOPs", Modest, "flops_per_token declares 0, and the compiler counts 232,"),
    ("saved activations", Hoarder, "saved activations, JAX keeps"),
    ("separate streams", Alike, "two streams differ by"),
    ("readings", Misread, "mixed from their readings deviate by"),
    ("parameters", Miscounted, "extra_params says 7, counted are 8"),
    ("bfloat16", Halting, "deviates from fp32 by"),
    ("scan = unrolled", Unrolled, "deviate by"),
    ("training", Exploding, "loss is nan|loss is inf"),
]


def subject(kind: type) -> Subject:
    return Subject(f"{HERE}:{kind.__name__}")


@pytest.mark.parametrize(("clause", "kind", "sentence"), FAULTS)
def test_a_fault_is_named(clause, kind, sentence):
    with pytest.raises(ContractError, match=sentence):
        CHECKS[clause](subject(kind))


def test_a_stream_of_another_dtype_is_named():
    with pytest.raises(ValueError, match=r"returned float32, not bfloat16; cast it"):
        check_plug_in(subject(Promoted).cfg(dtype="bfloat16"))


def test_too_much_modesty_is_a_fault_too():
    with pytest.raises(ContractError, match="declared not to be PreNorm at init, but is"):
        CHECKS["PreNorm at init"](subject(Shy))


def test_what_is_declared_idle_is_excused():
    assert "as declared" in CHECKS["effect"](subject(Excused))


def test_one_stream_needs_no_separation():
    with pytest.raises(NotApplicableError, match="one stream"):
        CHECKS["separate streams"](subject(Shy))


class Wide(PreNorm):
    """Reads all that it remembers."""

    def read(self, state, site):
        return jnp.concatenate([state.carry, state.carry], axis=-1)


class Nothing(PreNorm):
    """Forgets to return."""

    def read(self, state, site):
        state.carry + 0


class Shapeless(PreNorm):
    """Reads out one token."""

    def readout(self, state):
        return state.carry[:, :1]


class Stateless(PreNorm):
    """Writes an array, and no state."""

    def write(self, state, site, y_BTD):
        return state.carry + y_BTD


class Rewriting(PreNorm):
    """Appends to a history that is constant within a segment."""

    def write(self, state, site, y_BTD):
        return State((*state.history, y_BTD), state.carry + y_BTD)


class Branching(PreNorm):
    """Asks Python for the number of a sublayer that a scan runs."""

    def read(self, state, site):
        return state.carry if site % 2 else 2 * state.carry


class Indexing(PreNorm):
    """Looks up a list."""

    def read(self, state, site):
        return state.carry * [1, 2, 3, 4, 5, 6, 7, 8][site]


class Startless(PreNorm):
    """Begins with nothing."""

    def begin(self, state, segment):
        pass


class KeysOnly(PreNorm):
    """Returns values of another shape."""

    def keys_values(self, state, site, k_BTKH, v_BTKH):
        return k_BTKH, v_BTKH[..., :1], state


class Priceless(PreNorm):
    """No number."""

    @classmethod
    def flops_per_token(cls, cfg):
        return float("nan")


class Truthy(PreNorm):
    """Not quite a bool."""

    reduces_to_prenorm_at_init = "yes"


class Scaled(PreNorm):
    """A weight that there is not."""

    @classmethod
    def init_scales(cls, cfg):
        return {"output": 0.5}


class Single(PreNorm):
    """A range, not a list of ranges."""

    @classmethod
    def segments(cls, cfg):
        return range(cfg.n_sublayers)


class Switching(PreNorm):
    """A carry that changes its structure, which no scan can have."""

    def read(self, state, site):
        return state.carry[0] if isinstance(state.carry, tuple) else state.carry

    def write(self, state, site, y_BTD):
        return State((), (weighted_sum([jnp.float32(1)], [y_BTD]), y_BTD))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Wide, r"Wide.read returned an array \[1, 8, 64\], not \[batch, positions, 32\]"),
        (Nothing, r"Nothing.read returned NoneType, not an array"),
        (Shapeless, r"Shapeless.readout returned an array \[1, 1, 32\], not \[1, 8, 32\]"),
        (Stateless, "Stateless.write returned .*, not a State"),
        (Switching, "cannot be run: .*same (pytree )?structure"),
        (Miscounted, "declares extra_params 7, but has 8"),
        (Rewriting, "Rewriting changes state.history within a segment, where it is constant"),
        (
            Branching,
            r"line \d+ of test_contract_finds.py asks Python for a .*state.is_attention",
        ),
        (Indexing, "asks Python for a traced value"),
        (Startless, "Startless.begin returned NoneType, not a State"),
        (KeysOnly, r"returned float32 \[1, 8, 2, 16\], float32 \[1, 8, 2, 1\]; it must return"),
        (Priceless, "flops_per_token of .* is nan, and must be a finite number"),
        (Truthy, "reduces_to_prenorm of .* is 'yes', and must be True or False"),
        (Scaled, "init_scales of .* must be positive factors on some of q, k"),
        (Single, r"segments of .* is range\(0, 8\), and must be a list of ranges"),
    ],
)
def test_what_a_plug_in_returns_is_looked_at_before_anything_runs(kind, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_plug_in(subject(kind).cfg())
