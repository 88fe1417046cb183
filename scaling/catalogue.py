"""What the residual connections say of themselves, for `scaling variants` and docs/variants.md."""

import inspect
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from models import ModelConfig, ResidualSpec
from models.residuals import BUILT_IN, find
from scaling.errors import UserError, sentence
from scaling.flops import count_params, train_flops


@dataclass(frozen=True)
class Size:
    """The Transformer that costs are given at; an MLP of 4 d_model and heads of about 64."""

    d_model: int = 1024
    n_layers: int = 24

    def cfg(self, name: str, options: dict[str, Any]) -> ModelConfig:
        """A model of this size.

        Raises:
          UserError: no model has this size, or the options do not fit it.
        """
        n_heads = max(1, self.d_model // 64)
        try:
            cfg = ModelConfig(
                vocab_size=32_768, seq_len=2048, d_model=self.d_model, n_layers=self.n_layers,
                n_heads=n_heads, n_kv_heads=n_heads, head_dim=64, d_ff=4 * self.d_model,
                implementation="xla", residual=ResidualSpec(name=name, options=options),
            )  # fmt: skip
            find(name).options(cfg)
        except ValueError as error:
            size = f"d_model {self.d_model}, n_layers {self.n_layers}"
            raise UserError(f"{name} at {size}: {sentence(error)}.") from error
        return cfg


@dataclass(frozen=True)
class Entry:
    """One residual connection at one size."""

    name: str
    family: str
    summary: str
    equation: str
    source: str
    notes: str
    prenorm_at_init: bool
    own_params: int  # beyond PreNorm's; negative where norms are dropped
    train_flops: float  # over PreNorm's
    io_per_token: float | None  # per sublayer, in units of d_model
    options: dict[str, dict[str, str]]
    about_options: str
    examples: dict[str, dict[str, Any]]  # label -> options and prenorm_at_init


def entries(size: Size) -> list[Entry]:
    """All that are built in, by family."""
    found = [entry(name, size) for name in BUILT_IN]
    families = list(dict.fromkeys(entry.family for entry in found))
    return sorted(found, key=lambda entry: families.index(entry.family))


def entry(name: str, size: Size, options: dict[str, Any] | None = None) -> Entry:
    """A residual connection, built in or `package.module:Class`.

    Raises:
      UserError: there is no such, or its options do not fit.
    """
    try:
        kind = find(name)
    except ValueError as error:
        raise UserError(str(error)) from error
    cfg, base = size.cfg(name, options or {}), size.cfg("prenorm", {})
    io = kind.io_per_token(cfg)
    return Entry(
        name=name,
        family=kind.family,
        summary=kind.summary,
        equation=kind.equation,
        source=kind.source,
        notes=kind.notes,
        prenorm_at_init=kind.reduces_to_prenorm(cfg),
        own_params=count_params(cfg)[0] - count_params(base)[0],
        train_flops=train_flops(cfg, 1) / train_flops(base, 1),
        io_per_token=None if io is None else io / cfg.d_model,
        options={
            option: {"type": _type(field), "default": _default(field)}
            for option, field in kind.Options.model_fields.items()
        },
        about_options=inspect.cleandoc(kind.Options.__doc__ or ""),
        examples={
            label: {"options": given, "prenorm_at_init": _reduces(name, given)}
            for label, given in kind.examples.items()
        },
    )


def _reduces(name: str, options: dict) -> bool:
    small = Size(d_model=64, n_layers=4)  # which examples are made for
    return find(name).reduces_to_prenorm(small.cfg(name, options))


def _type(field) -> str:
    if get_origin(field.annotation) is Literal:
        return " or ".join(map(str, get_args(field.annotation)))
    kind = inspect.formatannotation(field.annotation).replace("None", "null")
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for rule in field.metadata
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([kind, *bounds])


def _default(field) -> str:
    return "null" if field.default is None else str(field.default)
