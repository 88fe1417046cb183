"""Cells: the runs of a study, each known by a hash of everything that influences its result."""

import hashlib
import json
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Literal

import pydantic

from models.config import ModelConfig, ResidualSpec, Strict
from models.residuals import BUILT_IN, find, source_sha256
from models.residuals.plug_in import check_plug_in
from scaling.errors import UserError, closest, sentence
from scaling.flops import count_params, train_flops
from scaling.learning_rates import rate_of
from scaling.study import DataSpec, Mesh, Size, Study, Train

_NO_IDENTITY = {"study", "size", "variant", "rate_swept_for", "mesh"}
# They change what is written on the way, never the result.
_NO_INFLUENCE = {"log_every", "checkpoint_every", "dynamics_every"}


class Cell(Strict):
    """One training run, fully resolved."""

    study: str
    size: str
    variant: str
    seed: int
    data: DataSpec
    model: ModelConfig
    train: Train  # learning_rate, batch_size and accumulate resolved
    steps: int
    rate_swept_for: str = ""  # the variant whose sweep chose the learning rate
    mesh: Literal["auto"] | Mesh = "auto"

    @cached_property
    def id(self) -> str:
        """Folder name: size, variant, seed, and eight hex digits of the identity hash."""
        return f"{self.size}-{self.variant}-s{self.seed}-{self.digest[:8]}"

    @cached_property
    def digest(self) -> str:
        """sha256 of `identity`."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    @property
    def identity(self) -> dict:
        """The fields that influence the result beyond rounding; labels do not."""
        fields = self.model_dump(mode="json", exclude=_NO_IDENTITY)
        for name in _NO_INFLUENCE:
            fields["train"].pop(name)
        return fields

    @property
    def key(self) -> str:
        """What it is called in the grid."""
        return f"{self.size}/{self.variant}/s{self.seed}"

    @property
    def micro_batch_size(self) -> int:
        """Sequences that are on the devices at a time."""
        return self.train.batch_size // self.train.accumulate

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step."""
        return self.train.batch_size * self.data.seq_len

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return self.steps * self.tokens_per_step

    @property
    def train_flops(self) -> float:
        """FLOPs of the whole run, in the default convention."""
        return train_flops(self.model, self.tokens)


def expand(
    study: Study,
    vocab_size: int,
    sizes: list[str] = (),
    variants: list[str] = (),
    seeds: list[int] = (),
) -> list[Cell]:
    """The cells of a study, small sizes first, restricted to the names given.

    Raises:
      UserError: an unknown size, variant or seed; sizes, options or a batch that do not fit.
    """
    sizes = _select("size", sizes, study.sizes)
    variants = _select("variant", variants, study.variants)
    seeds = _select("seed", seeds, study.seeds)
    # Once for all seeds: plug-ins are run on shapes.
    model_of = cache(partial(_model, study, vocab_size))
    return [
        _cell(study, model_of, size, variant, seed)
        for size in sizes
        for seed in seeds
        for variant in variants
    ]


def _select(kind: str, given: list, valid: list) -> list:
    for name in given:
        if name not in valid:
            raise UserError(f"the study has no {kind} {name!r}; {closest(name, valid)}")
    return [name for name in valid if not given or name in given]


def _cell(study: Study, model_of: Callable, size: str, variant: str, seed: int) -> Cell:
    spec, where = study.sizes[size], f"size {size!r}, variant {variant!r}"
    batch_size = spec.batch_size or study.train.batch_size
    accumulate = study.train.accumulate or spec.accumulate or 1
    if batch_size % accumulate:
        raise UserError(
            f"{where}: accumulate {accumulate} does not divide the batch of {batch_size} sequences."
        )
    # Every variant of a size sees the same tokens: those the baseline's size calls for.
    tokens = spec.tokens
    if tokens is None:
        baseline = model_of(size, study.baseline)
        tokens = study.train.tokens_per_param * count_params(baseline)[1]
    per_step = batch_size * study.data.seq_len
    steps = round(tokens / per_step)
    if steps < 1:
        raise UserError(
            f"{where}: {tokens:.0f} tokens are less than one batch of {batch_size} x "
            f"{study.data.seq_len} = {per_step} tokens; raise the tokens or lower the batch."
        )
    rate = rate_of(study, size, variant)
    resolved = {
        "learning_rate": rate.learning_rate,
        "batch_size": batch_size,
        "accumulate": accumulate,
    }
    return Cell(
        study=study.name,
        size=size,
        variant=variant,
        seed=seed,
        data=study.data,
        model=model_of(size, variant),
        train=study.train.model_copy(update=resolved),
        steps=steps,
        rate_swept_for=rate.swept_for,
        mesh=study.mesh,
    )


def _model(study: Study, vocab_size: int, size: str, variant: str) -> ModelConfig:
    """The model of one size and variant, its residual's options checked."""
    spec: Size = study.sizes[size]
    residual = study.variants[variant]
    try:
        kind = find(residual.residual)
    except ValueError as error:
        raise UserError(f"variant {variant!r}: {error}") from error
    unknown = [name for name in residual.options if name not in kind.Options.model_fields]
    if unknown:
        valid = kind.Options.model_fields
        hint = closest(unknown[0], valid) if valid else "it has none."
        raise UserError(
            f"variant {variant!r}: {residual.residual} has no option {unknown[0]!r}; {hint}"
        )
    try:
        cfg = ModelConfig(
            vocab_size=vocab_size,
            seq_len=study.data.seq_len,
            d_model=spec.d_model,
            n_layers=spec.n_layers,
            n_heads=spec.n_heads,
            n_kv_heads=spec.n_kv_heads or spec.n_heads,
            head_dim=spec.head_dim,
            d_ff=spec.d_ff or _default_d_ff(spec.d_model),
            residual=ResidualSpec(name=residual.residual, options=residual.options),
            **study.model.model_dump(),
        )
        # Options as resolved, so that a default written out is the same cell.
        options = kind.options(cfg).model_dump()
        if residual.residual not in BUILT_IN:
            check_plug_in(cfg)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        given = f" (given {first['input']!r})" if first["loc"] else ""
        raise UserError(f"size {size!r}, variant {variant!r}: {sentence(error)}{given}.") from error
    except ValueError as error:
        raise UserError(f"size {size!r}, variant {variant!r}: {error}.") from error
    resolved = ResidualSpec(
        name=residual.residual, options=options, source_sha256=source_sha256(residual.residual)
    )
    return cfg.model_copy(update={"residual": resolved})


def _default_d_ff(d_model: int) -> int:
    """8/3 d_model, rounded to a multiple of 8: the parameters of a plain 4x MLP."""
    return max(8, round(d_model / 3) * 8)
