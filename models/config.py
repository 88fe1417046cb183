"""What defines a model, independent of its residual connection."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernels import IMPLEMENTATIONS, best_implementation


class Strict(BaseModel):
    """Unknown keys are errors and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __hash__(self) -> int:  # fields may hold dicts
        return hash(self.model_dump_json())


class ResidualSpec(Strict):
    """A residual connection by name (or `package.module:Class`) and its options."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    source_sha256: str | None = None  # of the file of one that is not built in


class ModelSpec(Strict):
    """What all sizes of a study share."""

    qk_norm: bool = True
    rope_theta: float = Field(default=10_000.0, gt=0)
    tie_embeddings: bool = False
    norm_eps: float = Field(default=1e-6, gt=0)
    dtype: Literal["float32", "bfloat16"] = "float32"
    # What backward computes again in one piece: nothing, a layer, or a segment of the residual
    # connection (a block of Block AttnRes; where all depth is one segment, a layer).
    remat: Literal["none", "layer", "block"] = "none"
    scan: bool = True  # over layers, where the residual connection allows it
    # auto is splash on a TPU and xla elsewhere; see models/attention.py.
    attention: Literal["auto", "xla", "splash", "cudnn"] = "auto"
    # Of depth attention; auto is the best of the platform that runs it.
    implementation: Literal["auto", *IMPLEMENTATIONS] = "auto"


class ModelConfig(ModelSpec):
    """A decoder-only Transformer. Sizes count elements; a layer is attention plus MLP."""

    vocab_size: int = Field(gt=1)
    seq_len: int = Field(gt=0)
    d_model: int = Field(gt=0)
    n_layers: int = Field(gt=0)
    n_heads: int = Field(gt=0)
    n_kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)  # d_model / n_heads where none is given
    d_ff: int = Field(gt=0)
    residual: ResidualSpec

    def on_platform(self, platform: str) -> Self:
        """This model with what "auto" stands for on "cpu", "gpu" or "tpu"."""
        auto = {
            "implementation": best_implementation(platform),
            "attention": "splash" if platform == "tpu" else "xla",
        }
        return self.model_copy(update={k: v for k, v in auto.items() if getattr(self, k) == "auto"})

    @property
    def n_sublayers(self) -> int:
        """Attention and MLP each count as one."""
        return 2 * self.n_layers

    @model_validator(mode="before")
    @classmethod
    def _default_head_dim(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or raw.get("head_dim") is not None:
            return raw
        D, N = raw.get("d_model"), raw.get("n_heads")
        if not (isinstance(D, int) and isinstance(N, int) and N > 0):
            return raw
        if D % N:
            raise ValueError(f"d_model {D} is not divisible by n_heads {N}; give head_dim")
        return raw | {"head_dim": D // N}

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; RoPE rotates pairs, so it must be even")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads {self.n_heads} is not divisible by n_kv_heads {self.n_kv_heads}"
            )
        return self
