"""The training step and the evaluation step: plain JAX over dicts of arrays."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from models import ModelConfig, ResidualSpec, Transformer
from models.params import groups
from models.sharding import tokens_sharded
from models.transformer import make_residual
from scaling.cells import Cell
from scaling.optimizer import make_optimizer

Batch = dict[str, Array]


class Program:
    """The jitted functions of one cell, on all local devices.

    Other `devices` are those of a topology, to compile for hardware that is not here.

    The state is `{"params", "opt_state", "step"}`, nested dicts of arrays, replicated; a batch is
    `{"tokens": int32 [B, T + 1]}` and optionally `{"weights": fp32 [B, T]}`, split over "data".
    """

    def __init__(self, cell: Cell, devices: Sequence[jax.Device] | None = None):
        self.cell = cell
        devices = np.array(devices or jax.local_devices())
        mesh = Mesh(devices, ("data",))
        splits = cell.train.batch_size // cell.train.accumulate % devices.size == 0
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.by_row = NamedSharding(mesh, PartitionSpec("data")) if splits else self.replicated
        key = jax.eval_shape(lambda: jax.random.key(0))
        cfg = cell.model.on_platform(devices[0].platform)
        abstract = jax.eval_shape(lambda k: Transformer(cfg, k), key)
        self.graphdef = nnx.split(abstract)[0]
        self.optimizer = make_optimizer(cell.train, cell.steps, groups(abstract))

    def init(self) -> dict:
        """The state before step 0, a function of the seed alone."""
        params = init_params(self.cell.model, self.cell.seed)
        state = {"params": params, "opt_state": self.optimizer.init(params), "step": jnp.int32(0)}
        return jax.device_put(state, self.replicated)

    def put(self, batch: dict) -> Batch:
        """A host batch on the devices."""
        return jax.device_put(batch, self.by_row)

    def shapes(self) -> tuple[dict, Batch]:
        """A state and a batch as shapes with their shardings: enough to compile."""

        def on(sharding, tree):
            shape = partial(jax.ShapeDtypeStruct, sharding=sharding)
            return jax.tree.map(lambda x: shape(x.shape, x.dtype), tree)

        tokens = (self.cell.train.batch_size, self.cell.data.seq_len + 1)
        batch = {"tokens": jax.ShapeDtypeStruct(tokens, jnp.int32)}
        return on(self.replicated, jax.eval_shape(self.init)), on(self.by_row, batch)

    def nll_sum(self, params: dict, batch: Batch) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(sum of weighted next-token losses in nats, sum of weights)."""
        nll_BT, weights_BT = self._nll(params, batch)
        return jnp.sum(nll_BT * weights_BT), jnp.sum(weights_BT)

    def _nll(self, params: dict, batch: Batch) -> tuple[Array, Array]:
        tokens = batch["tokens"]
        with tokens_sharded(self.by_row if self.by_row.mesh.size > 1 else None):
            logits_BTV = nnx.merge(self.graphdef, params)(tokens[:, :-1])
        nll_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV, tokens[:, 1:])
        return nll_BT, batch.get("weights", jnp.ones_like(nll_BT))

    def gradients(self, params: dict, batch: Batch) -> tuple[Float[Array, ""], dict]:
        """(mean loss, its gradient) over all tokens of a batch, in `accumulate` micro-batches.

        Sums are accumulated and divided by the token count once, so that a micro-batch with fewer
        tokens counts for less.
        """
        n = self.cell.train.accumulate
        grad = jax.value_and_grad(self.nll_sum, has_aux=True)
        if n == 1:
            (total, count), grads = grad(params, batch)
        else:
            micro = jax.tree.map(lambda x: x.reshape(n, x.shape[0] // n, *x.shape[1:]), batch)

            def add(sums, batch):
                (loss, count), grads = grad(params, batch)
                return jax.tree.map(jnp.add, sums, (loss, count, grads)), None

            zeros = (jnp.float32(0), jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
            (total, count, grads), _ = jax.lax.scan(add, zeros, micro)
        return total / count, jax.tree.map(lambda g: g / count, grads)

    def train_step(self, state: dict, batch: Batch) -> tuple[dict, dict]:
        """One optimizer step and its metrics; `finite` covers loss, gradient and update."""
        loss, grads = self.gradients(state["params"], batch)
        updates, opt_state = self.optimizer.update(grads, state["opt_state"], state["params"])
        grad_norm, update_norm = optax.tree.norm(grads), optax.tree.norm(updates)
        metrics = {
            "loss": loss,
            "grad_norm": grad_norm,
            "finite": jnp.isfinite(loss) & jnp.isfinite(grad_norm) & jnp.isfinite(update_norm),
        }
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt_state": opt_state, "step": state["step"] + 1}, metrics

    def eval_step(self, params: dict, batch: Batch) -> tuple[Array, Array]:
        """Per row of the batch: (sum of losses [B], sum of weights [B])."""
        nll_BT, weights_BT = self._nll(params, batch)
        return jnp.sum(nll_BT * weights_BT, axis=1), jnp.sum(weights_BT, axis=1)

    def compile_train(self, state: dict, batch: Batch) -> Callable:
        """`train_step`, compiled; it consumes the state it is given."""
        return jax.jit(self.train_step, donate_argnums=0).lower(state, batch).compile()

    def compile_eval(self, params: dict, batch: Batch) -> Callable:
        """`eval_step`, compiled."""
        return jax.jit(self.eval_step).lower(params, batch).compile()


def init_params(cfg: ModelConfig, seed: int) -> dict:
    """Initial parameters as a nested dict of fp32 arrays.

    What variants share comes out of one program, the baseline's, so that under one seed it is
    bitwise the same whatever the residual connection, and is compiled once for all variants.
    """
    key = jax.random.key(seed)
    prenorm = cfg.model_copy(update={"residual": ResidualSpec(name="prenorm")})
    params = jax.jit(lambda key: _pure(Transformer(prenorm, key)))(key)
    own = _pure(make_residual(cfg, key))
    return {**params, "residual": own} if own else params


def _pure(module: nnx.Module) -> dict:
    return nnx.to_pure_dict(nnx.split(module)[1])
