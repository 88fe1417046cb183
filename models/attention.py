"""Causal attention of one sublayer, by the kernel that fits the platform.

`xla` is plain JAX, whose scores exist whole: [B, N, T, T]. `splash` is JAX's own Pallas kernel for
TPU and never makes them. `cudnn` is cuDNN's, through JAX, for half-precision on NVIDIA GPUs.
"""

from functools import cache

import jax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from models.config import ModelConfig
from models.sharding import constrain, sharding_of

LANES = 128  # of a TPU


def attention(
    q_BTNH: Float[Array, "B T N H"],
    k_BTKH: Float[Array, "B T K H"],
    v_BTKH: Float[Array, "B T K H"],
    cfg: ModelConfig,
) -> Float[Array, "B T N H"]:
    """softmax(q k^T / sqrt(H), causal) v; a query head n uses key head n // (N / K).

    Where positions are split over devices, each gathers all keys and values for its own queries.
    """
    q_BTNH = constrain(q_BTNH, "batch", "sequence", "heads", None)
    k_BTKH = constrain(k_BTKH, "batch", None, "kv_heads", None)
    v_BTKH = constrain(v_BTKH, "batch", None, "kv_heads", None)
    q = sharding_of(q_BTNH.shape, "batch", "sequence", "heads", None)
    kv = sharding_of(k_BTKH.shape, "batch", None, "kv_heads", None)
    name = kernel(cfg, positions_split=q is not None and q.spec[1] is not None)
    if name == "splash":
        return _splash(q_BTNH, k_BTKH, v_BTKH, q, kv)
    return jax.nn.dot_product_attention(q_BTNH, k_BTKH, v_BTKH, is_causal=True, implementation=name)


def kernel(cfg: ModelConfig, positions_split: bool) -> str:
    """The kernel that `cfg.attention` comes to; splash takes whole positions in whole lanes."""
    lanes = cfg.seq_len % LANES == 0 and cfg.head_dim % LANES == 0
    splash = cfg.attention == "splash" and lanes and not positions_split
    return "cudnn" if cfg.attention == "cudnn" else "splash" if splash else "xla"


def _splash(q_BTNH, k_BTKH, v_BTKH, q: NamedSharding | None, kv: NamedSharding | None):
    def local(q_BTNH, k_BTKH, v_BTKH):
        q_BNTH, k_BKTH, v_BKTH = (x.swapaxes(1, 2) for x in (q_BTNH, k_BTKH, v_BTKH))
        kernel = _kernel(*q_BNTH.shape[1:3])
        scaled_BNTH = q_BNTH * q_BNTH.shape[-1] ** -0.5
        return jax.vmap(kernel)(scaled_BNTH, k_BKTH, v_BKTH).swapaxes(1, 2)

    if q is None:
        return local(q_BTNH, k_BTKH, v_BTKH)
    if kv.spec[2] != q.spec[2]:  # fewer key heads than devices: each query head brings its own
        repeats = q_BTNH.shape[2] // k_BTKH.shape[2]
        k_BTKH, v_BTKH = (x.repeat(repeats, axis=2) for x in (k_BTKH, v_BTKH))
    spec = PartitionSpec(q.spec[0], None, q.spec[2])
    run = jax.shard_map(local, mesh=q.mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False)
    return run(q_BTNH, k_BTKH, v_BTKH)


@cache
def _kernel(n_heads: int, seq_len: int):
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    mask = splash.MultiHeadMask([splash.CausalMask((seq_len, seq_len))] * n_heads)
    size = next(size for size in (1024, 512, 256, LANES) if seq_len % size == 0)
    blocks = splash.BlockSizes(
        block_q=size, block_kv=size, block_kv_compute=size, block_q_dkv=size, block_kv_dkv=size,
        block_kv_dkv_compute=size, use_fused_bwd_kernel=True,
    )  # fmt: skip
    with jax.ensure_compile_time_eval():
        return splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
