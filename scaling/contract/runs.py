"""The checks that train, or run on several devices, or need a derivation from the equations."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from models.config import ModelConfig
from models.params import axes, groups
from models.sharding import resolved_by
from models.transformer import make_residual
from scaling.contract import toy
from scaling.contract.checks import (
    TOLERANCE,
    ContractError,
    NotApplicableError,
    moved,
    moved_params,
    relative,
)
from scaling.contract.subject import (
    Subject,
    abstract,
    logits_of,
    loss_cotangent,
    make_params,
    pull_of,
    tokens_BT,
)
from scaling.optimizer import make_optimizer
from scaling.sharding import AXES, Sharding
from scaling.study import Train

STEPS, LAYERS = 50, 16
SPREADS = (0.05, 0.2)  # near the initial parameters, and where all of them matter


def derivation(subject: Subject, derive: Callable) -> str:
    """What every sublayer and the head read, against a float64 NumPy derivation.

    Args:
      derive: derive(params, x, f, cfg) -> inputs of all sublayers, then the readout. params are
        the residual connection's own, in float64; x is the embedding [B, T, D]; f(site, h) the
        output of a sublayer, see `toy.numpy_sublayers`.
    """
    cfg = subject.cfg(scan=False, n_kv_heads=1)
    worst = max(_deviation(cfg, derive, spread) for spread in SPREADS)
    return f"deviates by {worst:.0e}"


def _deviation(cfg: ModelConfig, derive: Callable, spread: float) -> float:
    """The largest, over all reads, with parameters moved by so much from where they start."""
    residual = moved(make_residual(cfg, jax.random.key(0)), spread=spread)
    params = jax.tree.map(np.float64, nnx.to_pure_dict(nnx.split(residual)[1]))
    x = np.random.default_rng(9).normal(size=(2, 8, cfg.d_model))
    found = toy.inputs_and_readout(residual, jnp.asarray(x, jnp.float32))
    x = np.float64(np.float32(x))
    expected = derive(_lists(params), x, toy.numpy_sublayers(cfg), cfg)
    if len(found) != len(expected):
        raise ContractError(f"makes {len(found)} reads, and the derivation {len(expected)}")
    worst = 0.0
    for site, (own, other) in enumerate(zip(found, expected, strict=True)):
        own, other = (x if isinstance(x, tuple) else (x,) * 3 for x in (own, other))  # q, k, v
        off = max(relative(a, b) for a, b in zip(own, other, strict=True))
        if not off <= TOLERANCE:
            name = "the readout" if site == cfg.n_sublayers else f"the input of sublayer {site}"
            raise ContractError(f"{name} deviates from the derivation by {off:.1e}")
        worst = max(worst, off)
    return worst


def training(subject: Subject) -> str:
    """Fifty steps of sixteen layers, every loss finite and the last below the first."""
    try:
        cfg = subject.cfg(n_layers=LAYERS, d_model=16, d_ff=24)
    except ValueError as error:  # the options are for another depth
        raise NotApplicableError(f"does not fit {LAYERS} layers: {error}") from error
    graphdef, _ = nnx.split(abstract(cfg))
    optimizer = make_optimizer(Train(learning_rate=0.01), STEPS, groups(abstract(cfg)))
    tokens = jax.random.randint(jax.random.key(3), (4, 9), 0, cfg.vocab_size)

    def run(params):
        def step(state, _):
            params, opt_state = state
            loss, grads = jax.value_and_grad(
                lambda p: nnx.merge(graphdef, p).nll_sum(tokens, jnp.full((4, 8), 1 / 32))
            )(params)
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        return jax.lax.scan(step, (params, optimizer.init(params)), length=STEPS)[1]

    with jax.numpy_dtype_promotion("standard"):  # which optax relies on
        params = make_params(cfg)(jax.random.key(0))
        losses = np.asarray(jax.jit(run, compiler_options=toy.QUICK)(params))
    if not np.isfinite(losses).all():
        raise ContractError(f"loss is {losses[~np.isfinite(losses)][0]} in {STEPS} steps")
    if not losses[-1] < losses[0]:
        raise ContractError(f"learns nothing: loss {losses[0]:.2f}, then {losses[-1]:.2f}")
    return f"loss {losses[0]:.2f} to {losses[-1]:.2f} in {STEPS} steps, {LAYERS} layers"


def sharded(subject: Subject) -> str:
    """Split over four devices (weights, heads and positions), the same logits and gradients."""
    if len(jax.devices()) < 4:
        raise NotApplicableError("needs four devices")
    cfg = subject.shallow()
    mesh = jax.make_mesh(
        (1, 2, 1, 2), AXES, axis_types=(jax.sharding.AxisType.Auto,) * 4,
        devices=jax.devices()[:4],
    )  # fmt: skip
    resolve = Sharding(mesh, cfg)
    graphdef, _ = nnx.split(abstract(cfg))
    params = moved_params(cfg)  # streams that have parted: no gradient is a difference of equals
    where = jax.tree.map(lambda p, a: resolve(a, p.shape), params, axes(abstract(cfg)))

    def pull(params, cotangent):
        with resolved_by(resolve):
            logits, back = jax.vjp(lambda p: nnx.merge(graphdef, p)(tokens_BT()), params)
            return logits, back(cotangent)[0]

    cotangent = loss_cotangent(logits_of(cfg, params))
    split = jax.jit(pull, compiler_options=toy.QUICK)(jax.device_put(params, where), cotangent)
    worst = max(jax.tree.leaves(jax.tree.map(relative, split, pull_of(cfg)(params, cotangent))))
    if worst > TOLERANCE:
        raise ContractError(f"four devices deviate from one by {worst:.0e}")
    return f"deviates by {worst:.0e} on mesh fsdp 2 x tensor 2"


def _lists(params):
    """Nested dicts numbered 0, 1, ... as lists, as the equations have them."""
    if not isinstance(params, dict):
        return params
    values = {key: _lists(value) for key, value in params.items()}
    numbered = values and all(isinstance(key, int) for key in values)
    return [values[i] for i in sorted(values)] if numbered else values
