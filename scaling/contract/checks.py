"""The checks: each returns what it found in a few words, or says what is wrong."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from models.config import ModelConfig
from models.depth import final_state, walk
from models.params import groups
from models.residuals.base import Residual
from models.taps import TappedReads
from models.transformer import make_residual
from scaling.contract import toy
from scaling.contract.subject import (
    Subject,
    abstract,
    logits_of,
    loss,
    loss_cotangent,
    make_params,
    named,
    prenorm,
    pull_of,
)
from scaling.flops import count_params, forward_flops_per_token

TOLERANCE = 1e-5
VISIBLE = 1e-6  # a change of the output larger than rounding, of the largest logit
ROUNDING = 1e-8  # a gradient as small as this part of the largest is none
SHARED = ("embed", "layers", "final_norm", "head")


class ContractError(Exception):
    """A clause of the contract that does not hold."""


class NotApplicableError(Exception):
    """A clause that says nothing about this residual connection."""


def causal(subject: Subject) -> str:
    """No output depends on a later token; every earlier one matters.

    By value too: a derivative does not see through `stop_gradient`, rounding or an argmax.
    """
    params, _ = subject.trained
    cotangent = jnp.zeros((2, 8, 17)).at[0, 4].set(1.0)
    before, grads = subject.pull(params, cotangent)
    by_position = np.abs(grads["embed"][:16]).max(axis=1).reshape(2, 8)
    if by_position[0, 5:].any():
        raise ContractError("the output at position 4 depends on a later token")
    if by_position[1].any():
        raise ContractError("the output depends on another sequence of the batch")
    if not by_position[0, :5].all():
        raise ContractError("the output at position 4 does not depend on all tokens up to it")
    for what, rows in {"a later token": slice(5, 8), "another sequence": slice(8, 16)}.items():
        after = subject.logits(params | {"embed": params["embed"].at[rows].add(1.0)})
        if (after[0, :5] != before[0, :5]).any():
            raise ContractError(f"outputs up to position 4 change with {what}, by value")
    return "by gradient and by value"


def prenorm_at_init(subject: Subject) -> str:
    """PreNorm before the first update, or not, as declared: loss and shared gradients."""
    results = []
    for model in (prenorm(), subject):
        logits = model.logits(model.params)
        _, grads = model.pull(model.params, loss_cotangent(logits))
        grads.pop("residual", None)
        results.append((loss(logits), grads))
    (expected, shared), (found, own) = results
    if jax.tree.structure(shared) == jax.tree.structure(own):
        worst = max(jax.tree.leaves(jax.tree.map(relative, own, shared)))
    else:
        worst = np.inf  # not even the same weights
    worst = max(worst, abs(found - expected) / expected)
    declared = subject.kind.reduces_to_prenorm(subject.cfg())
    if declared and worst > TOLERANCE:
        raise ContractError(f"declared to be PreNorm at init, but deviates by {worst:.1e}")
    if not declared and worst <= TOLERANCE:
        raise ContractError("declared not to be PreNorm at init, but is")
    return f"{'is' if declared else 'is not'} PreNorm at init ({worst:.0e})"


def parameters(subject: Subject) -> str:
    """As many as the closed form says, each with an optimizer group."""
    cfg = subject.cfg()
    leaves = jax.tree.leaves(subject.params)
    counted, declared = sum(leaf.size for leaf in leaves), count_params(cfg)[0]
    if counted != declared:
        own = sum(leaf.size for leaf in jax.tree.leaves(subject.params.get("residual", {})))
        raise ContractError(
            f"extra_params says {subject.kind.extra_params(cfg)}, counted are {own}"
        )
    found = sorted(set(jax.tree.leaves(groups(abstract(cfg)).get("residual", {}))))
    return f"{subject.kind.extra_params(cfg)} of its own; groups {', '.join(found) or 'none'}"


def flops(subject: Subject) -> str:
    """Within 5% of the compiler's count of the unrolled program, forward and training step.

    The residual connection's own must be right within a factor of two, or within four operations
    a channel and sublayer.
    """
    wide = dict(
        d_model=768, n_heads=8, n_kv_heads=8, d_ff=2048, vocab_size=1024, seq_len=32, n_layers=3,
        scan=False,
    )  # fmt: skip
    cfg, base = subject.cfg(**wide), prenorm().cfg(**wide)
    declared = sum(forward_flops_per_token(cfg).values())
    forward, step = counted_flops(cfg)
    ratios = declared / forward, 3 * declared / step
    if max(abs(r - 1) for r in ratios) > 0.05:
        raise ContractError(
            f"declared / counted is {ratios[0]:.3f} forward, {ratios[1]:.3f} in a step"
        )
    more, found = subject.kind.flops_per_token(cfg), forward - counted_flops(base)[0]
    if abs(more - found) > max(0.5 * max(more, found), 4 * cfg.d_model * cfg.n_sublayers):
        raise ContractError(
            f"flops_per_token declares {more:,.0f}, and the compiler counts {found:,.0f} more than "
            f"PreNorm's a token (at d_model {cfg.d_model}, {cfg.n_layers} layers)"
        )
    return f"declared / counted {ratios[0]:.3f} forward, {ratios[1]:.3f} step"


@lru_cache(maxsize=4)
def counted_flops(cfg: ModelConfig) -> tuple[float, float]:
    """What the compiler counts a token: of a forward pass, and of a training step."""
    graphdef, params = nnx.split(abstract(cfg))
    params = nnx.to_pure_dict(params)

    def forward(params, tokens):
        return nnx.merge(graphdef, params)(tokens[:, :-1])

    def step(params, tokens):
        return nnx.merge(graphdef, params).nll_sum(tokens, jnp.ones((2, cfg.seq_len)))

    shape = jax.ShapeDtypeStruct((2, cfg.seq_len + 1), jnp.int32)
    return tuple(
        jax.jit(function).lower(params, shape).cost_analysis()["flops"] / (2 * cfg.seq_len)
        for function in (forward, jax.grad(step))
    )


def gradients(subject: Subject) -> str:
    """Every parameter receives a gradient within three steps, but for those declared idle.

    The shared ones too, row by row of the layers: no output is forgotten.
    """
    seen = subject.trained[1]
    least = ROUNDING * max(float(leaf.max()) for leaf in jax.tree.leaves(seen))
    rows = subject.all_rows(jax.tree.map(lambda g: g > least, seen))
    return _all_but_idle(subject, rows, "receives no gradient within three steps", "receives one")


def effect(subject: Subject) -> str:
    """Every parameter changes the output, by more than rounding, but for those declared idle.

    After three steps or from random values: a weight may be next to zero at first, or saturated.
    """
    leaves, treedef = jax.tree.flatten(subject.params.get("residual", {}))
    changed = [np.zeros(leaf.shape, bool) for leaf in leaves]
    for params in (subject.trained[0], moved_params(subject.cfg())):
        before, values = subject.logits(params), jax.tree.leaves(params.get("residual", {}))
        for i, leaf in enumerate(values):
            for row in range(len(leaf)) if leaf.ndim else [...]:
                if not changed[i][row].any():
                    rng = np.random.default_rng(i)
                    noise = jnp.asarray(0.5 + 0.5 * rng.random(leaf[row].shape), jnp.float32)
                    other = [*values[:i], leaf.at[row].add(noise), *values[i + 1 :]]
                    after = subject.logits(params | {"residual": treedef.unflatten(other)})
                    changed[i][row] = relative(after, before) > VISIBLE
    rows = subject.rows({"residual": treedef.unflatten(changed)})
    return _all_but_idle(subject, rows, "never changes the output", "changes the output")


def separate(subject: Subject) -> str:
    """Streams that start alike do not stay so."""
    if subject.kind.streams is Residual.streams:
        raise NotApplicableError("one stream: `streams` is not defined")
    cfg = subject.cfg(scan=False)
    residual = make_residual(cfg, jax.random.key(0))
    nnx.update(residual, subject.trained[0].get("residual", {}))
    x_BTD = jax.random.normal(jax.random.key(1), (2, 8, cfg.d_model))
    streams = residual.streams(final_state(residual, x_BTD, toy.ToyLayers(cfg)))
    if len(streams) < 2:
        raise NotApplicableError("has one stream")
    spread = min(
        float(jnp.linalg.norm(a - b) / jnp.linalg.norm(a))
        for i, a in enumerate(streams)
        for b in streams[:i]
    )
    if spread < 1e-4:
        raise ContractError(f"after three steps two streams differ by {spread:.0e} of their norm")
    return f"{len(streams)} streams, {spread:.0e} apart after three steps"


def readings(subject: Subject) -> str:
    """What `reading` takes apart mixes to what `read` reads."""
    cfg = subject.cfg(scan=False)
    if not subject.kind.sources(cfg):
        raise NotApplicableError("reads are no weighted sums over depth: no `sources`")
    residual = moved(make_residual(cfg, jax.random.key(0)))
    x_BTD = jax.random.normal(jax.random.key(1), (2, 8, cfg.d_model))
    tapped = TappedReads(residual, lambda reading, read: reading.mixed())
    layers = toy.ToyLayers(cfg)
    off = relative(walk(tapped, x_BTD, layers), walk(residual, x_BTD, layers))
    if off > 1e-4:
        raise ContractError(f"reads that are mixed from their readings deviate by {off:.0e}")
    return f"mix to what is read, within {off:.0e}"


def bfloat16(subject: Subject) -> str:
    """Runs in bfloat16 too, near fp32."""
    cfg = subject.cfg(dtype="bfloat16")
    params = subject.trained[0]
    exact = subject.logits(params)
    with jax.numpy_dtype_promotion("standard"):
        half, grads = pull_of(cfg)(params, loss_cotangent(exact))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((half, grads))):
        raise ContractError("not finite in bfloat16")
    off = relative(half, exact)
    if not 0 < off < 0.1:
        raise ContractError(f"bfloat16 deviates from fp32 by {off:.0e} of the largest logit")
    return f"deviates by {off:.0e} of the largest logit"


def unrolled(subject: Subject) -> str:
    """Scanned layers and unrolled ones give the same numbers."""
    scanned = [cfg for cfg in (subject.shallow(), subject.cfg()) if subject.is_scanned(cfg)]
    if not scanned:
        raise NotApplicableError("is never scanned")
    cfg = scanned[0]
    params = moved_params(cfg)
    unrolled_cfg = cfg.model_copy(update={"scan": False})
    cotangent = loss_cotangent(logits_of(cfg, params))
    results = [pull_of(c)(params, cotangent) for c in (cfg, unrolled_cfg)]
    worst = max(jax.tree.leaves(jax.tree.map(relative, *results)))
    if worst > 1e-4:
        raise ContractError(f"scanned and unrolled layers deviate by {worst:.0e}")
    return f"deviate by {worst:.0e}"


def saved_activations(subject: Subject) -> str:
    """Arrays [B, T, D] kept for backward are as many as declared."""
    shape = dict(d_model=48, head_dim=10, seq_len=3, n_layers=3, scan=False)
    counts = {}
    for remat in ("none", "layer"):
        try:
            cfg = subject.cfg(**shape, remat=remat)
        except ValueError:  # the options are for another depth
            cfg = subject.cfg(**shape | {"n_layers": 4}, remat=remat)
        declared = subject.kind.saved_activations(cfg)
        if declared is None:
            raise NotApplicableError("declares none")
        residual = moved(make_residual(cfg, jax.random.key(0)))
        x_BTD = jax.random.normal(jax.random.key(2), (2, 3, cfg.d_model))
        found = toy.kept_arrays(residual, x_BTD)
        if found != declared:
            raise ContractError(
                f"declares {declared} saved activations, JAX keeps {found} (remat {remat})"
            )
        counts[remat] = found
    return f"{counts['none']} kept, {counts['layer']} with remat, of {cfg.n_layers} layers"


def moved(residual: Residual | dict, spread: float = 0.1) -> Residual | dict:
    """A residual connection, or its parameters, with random numbers added to all of them.

    To matrices as much as leaves their products of order one: logits of thirty would multiply
    rounding errors by thirty.
    """
    rng = np.random.default_rng(5)  # NumPy compiles nothing

    def move(a):
        is_matrix = a.ndim > 2 or (a.ndim == 2 and min(a.shape) > 8)  # no vector a (sub)layer
        fan_in = a.shape[-2] if is_matrix else 1
        noise = spread / fan_in**0.5 * rng.standard_normal(a.shape)
        return jnp.asarray(np.asarray(a) + np.float32(noise))

    return jax.tree.map(move, residual)


def moved_params(cfg: ModelConfig) -> dict:
    """All parameters at initialisation, but for the residual connection's own, which are moved.

    And for the embedding, which is of unit size: one of 0.02 multiplies rounding errors by fifty.
    """
    params = make_params(cfg)(jax.random.key(0))
    params["embed"] = params["embed"] / jnp.std(params["embed"])
    if "residual" in params:
        params["residual"] = moved(params["residual"])
    return params


def _all_but_idle(
    subject: Subject, rows: dict[str, np.ndarray], complaint: str, otherwise: str
) -> str:
    """Which rows are still; a fault where that is not what is declared."""
    still = [name for name, row in rows.items() if not row.any()]
    guilty = [name for name in still if not subject.excused(name)]
    if guilty:
        more = f" (and {len(guilty) - 1} more)" if len(guilty) > 1 else ""
        raise ContractError(f"{guilty[0]}{more} {complaint}")
    for name in subject.kind.idle(subject.cfg()):
        own = [row for row in rows if named(row, name)]
        if not own and name.split("[")[0].split(".")[0] not in SHARED:
            raise ContractError(f"{name} is declared idle, but there is no such parameter")
        if set(own) - set(still):
            raise ContractError(f"{name} is declared idle, but {otherwise}")
    excused = f", but {', '.join(still)} as declared" if still else ""
    return f"all {len(rows)} rows{excused}" if rows else "has no parameters"


def relative(a, b) -> float:
    """The largest deviation of a from b over the largest number in b; infinite for a NaN."""
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    off = np.abs(a - b).max(initial=0) / (np.abs(b).max(initial=0) or 1.0)
    return float(off) if np.isfinite(off) else np.inf
