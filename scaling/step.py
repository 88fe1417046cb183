"""The training step and the evaluation step: plain JAX over dicts of arrays."""

from collections.abc import Callable, Sequence
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from models import ModelConfig, Transformer
from models.attention import kernel
from models.depth import Observe
from models.params import axes, groups
from models.sharding import resolved_by
from models.transformer import make_residual
from scaling.cells import Cell
from scaling.optimizer import make_optimizer
from scaling.sharding import Sharding, log_once, make_mesh

Batch = dict[str, Array]


class Program:
    """The jitted functions of one cell, on all devices of all hosts.

    Other `devices` are those of a topology, to compile for hardware that is not here; an abstract
    mesh is enough to lower.

    The state is `{"params", "opt_state", "step"}`, nested dicts of arrays, each split as the rules
    of `scaling.sharding` say, the optimizer's moments like their parameters. A batch is
    `{"tokens": int32 [B, T + 1]}` and optionally `{"weights": fp32 [B, T]}`, rows split.

    Raises:
      UserError: the cell's mesh does not fit the devices, or the cell cannot be split so.
    """

    def __init__(self, cell: Cell, devices: Sequence[jax.Device] | AbstractMesh | None = None):
        self.cell = cell
        if isinstance(devices, AbstractMesh):
            self.mesh, platform = devices, jax.default_backend()
        else:
            devices = devices or jax.devices()
            self.mesh, platform = make_mesh(cell, devices), devices[0].platform
        cfg = cell.model.on_platform(platform)
        self.sharding = Sharding(self.mesh, cfg)
        if cfg.attention == "splash" and kernel(cfg, self.mesh.shape["sequence"] > 1) == "xla":
            log_once(
                f"{cell.key}: attention is xla's, whose scores exist whole, since splash needs "
                "seq_len and head_dim in multiples of 128 and mesh sequence 1"
            )
        self.by_row = self.sharding(("batch", None), (cell.micro_batch_size, 0))
        key = jax.eval_shape(lambda: jax.random.key(0))
        abstract = jax.eval_shape(lambda k: Transformer(cfg, k), key)
        self.graphdef, params = nnx.split(abstract)
        self.optimizer = make_optimizer(cell.train, cell.steps, groups(abstract))
        self.state_shapes = self._state_shapes(nnx.to_pure_dict(params), axes(abstract))

    def _state_shapes(self, params: dict, axes: dict) -> dict:
        """The state as shapes with their shardings."""

        def on(shape, sharding):
            return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

        def masked(leaf) -> bool:  # another group's parameter
            return isinstance(leaf, optax.MaskedNode)

        params = jax.tree.map(lambda p, a: on(p, self.sharding(a, p.shape)), params, axes)
        # Every moment has its parameter's place in a tree shaped like the parameters'.
        opt_state = optax.tree.map_params(
            self.optimizer,
            lambda moment, p: moment if masked(moment) else on(moment, p.sharding),
            jax.eval_shape(self.optimizer.init, params),
            params,
            transform_non_params=lambda x: on(x, self.sharding.replicated),
            is_leaf=masked,
        )
        step = jax.ShapeDtypeStruct((), jnp.int32, sharding=self.sharding.replicated)
        return {"params": params, "opt_state": opt_state, "step": step}

    @property
    def shardings(self) -> dict:
        """Where each array of the state lies."""
        return jax.tree.map(lambda x: x.sharding, self.state_shapes)

    def init(self) -> dict:
        """The state before step 0, a function of the seed alone."""
        where = self.shardings
        params = init_params(self.cell.model, self.cell.seed, where["params"])
        opt_state = jax.jit(self.optimizer.init, out_shardings=where["opt_state"])(params)
        return {"params": params, "opt_state": opt_state,
                "step": jax.device_put(jnp.int32(0), where["step"])}  # fmt: skip

    @cached_property
    def rows(self) -> np.ndarray:
        """The numbers of the batch's rows that this process holds, sorted."""
        B = self.cell.train.batch_size
        held = self.by_row.addressable_devices_indices_map((B, 1)).values()
        return np.unique(np.concatenate([np.arange(B)[index[0]] for index in held]))

    def put(self, batch: dict) -> Batch:
        """`rows` of a batch, as arrays of the whole batch on the devices of all hosts."""
        B = self.cell.train.batch_size
        return {
            name: jax.make_array_from_process_local_data(self.by_row, x, (B, *x.shape[1:]))
            for name, x in batch.items()
        }

    def shapes(self) -> tuple[dict, Batch]:
        """A state and a batch as shapes with their shardings: enough to compile."""
        tokens = (self.cell.train.batch_size, self.cell.data.seq_len + 1)
        batch = {"tokens": jax.ShapeDtypeStruct(tokens, jnp.int32, sharding=self.by_row)}
        return self.state_shapes, batch

    def model(self, params: dict) -> Transformer:
        """The model with these parameters, to be traced under `resolved`."""
        return nnx.merge(self.graphdef, params)

    def resolved(self):
        """A context in which the model's logical axes lie on this mesh."""
        return resolved_by(self.sharding if self.mesh.size > 1 else None)

    def nll_sum(self, params: dict, batch: Batch) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(sum of weighted next-token losses in nats, sum of weights)."""
        weights_BT = _weights(batch)
        with self.resolved():
            total = self.model(params).nll_sum(batch["tokens"], weights_BT)
        return total, jnp.sum(weights_BT)

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
            micro = jax.tree.map(self._micro_batches, batch)

            def add(sums, batch):
                (loss, count), grads = grad(params, batch)
                return jax.tree.map(jnp.add, sums, (loss, count, grads)), None

            zeros = (jnp.float32(0), jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
            (total, count, grads), _ = jax.lax.scan(add, zeros, micro)
        return total / count, jax.tree.map(lambda g: g / count, grads)

    def observed_gradients(
        self, params: dict, tokens_BT: Int[Array, "B T+1"], observe: Observe
    ) -> tuple[dict, list]:
        """The gradient of the mean loss by the layers' parameters, and what `observe` has seen.

        See models.depth; the gradient by the other parameters is not computed.
        """
        B, T = tokens_BT.shape
        weights_BT = jnp.full((B, T - 1), 1 / (B * (T - 1)), jnp.float32)

        def loss(layers):
            with self.resolved():
                model = self.model({**params, "layers": layers})
                return model.observed_nll_sum(tokens_BT, weights_BT, observe)

        return jax.grad(loss, has_aux=True)(params["layers"])

    def _micro_batches(self, x: Array) -> Array:
        """[B, ..] -> [n, B / n, ..]; each takes rows from all devices, so that none move."""
        n = self.cell.train.accumulate
        x = x.reshape(x.shape[0] // n, n, *x.shape[1:]).swapaxes(0, 1)
        spec = PartitionSpec(None, *self.by_row.spec)
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

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
        weights_BT = _weights(batch)
        with self.resolved():
            nll_BT = self.model(params).nll(batch["tokens"])
        return jnp.sum(nll_BT * weights_BT, axis=1), jnp.sum(weights_BT, axis=1)

    def trace_train(self, state: dict, batch: Batch) -> jax.stages.Traced:
        """`train_step`, traced; it consumes the state it is given."""
        step = jax.jit(
            self.train_step,
            donate_argnums=0,
            out_shardings=(self.shardings, self.sharding.replicated),
        )
        return step.trace(state, batch)

    def compile_train(self, state: dict, batch: Batch) -> Callable:
        """`trace_train`, compiled."""
        return self.trace_train(state, batch).lower().compile()

    def compile_eval(self, params: dict, batch: Batch) -> Callable:
        """`eval_step`, compiled; its results are whole on every host."""
        step = jax.jit(self.eval_step, out_shardings=self.sharding.replicated)
        return step.lower(params, batch).compile()


def init_params(cfg: ModelConfig, seed: int, shardings: dict | None = None) -> dict:
    """Initial parameters as a nested dict of fp32 arrays, laid out as `shardings` says, if it does.

    What variants share comes out of a program without the residual connection, so that under one
    seed it is bitwise the same for all of them (but for `init_scales`) and is compiled once.
    """
    key, shardings = jax.random.key(seed), dict(shardings or {})

    def make(module, where):
        return jax.jit(lambda key: _pure(module(key)), out_shardings=where or None)(key)

    own = make(lambda key: make_residual(cfg, key), shardings.pop("residual", None))
    params = make(lambda key: Transformer(cfg, key, with_residual=False), shardings)
    return {**params, "residual": own} if own else params


def _weights(batch: Batch) -> Float[Array, "B T"]:
    B, T = batch["tokens"].shape
    return batch.get("weights", jnp.ones((B, T - 1), jnp.float32))


def _pure(module: nnx.Module) -> dict:
    return nnx.to_pure_dict(nnx.split(module)[1])
