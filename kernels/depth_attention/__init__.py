"""h = sum_i softmax_i(w . RMSNorm_g(v_i)) v_i over the sources v_i of one token."""

from kernels.depth_attention.direct import depth_attention
from kernels.depth_attention.scored import mix, score

__all__ = ["depth_attention", "mix", "score"]
