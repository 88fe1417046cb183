"""A study: data, a ladder of sizes, variants, seeds and a recipe, read from YAML and checked."""

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
import yaml
from pydantic import Field, StringConstraints, model_validator

from models.config import ModelSpec, Strict
from scaling.errors import UserError, closest
from scaling.yaml_text import load_yaml

# Labels become folder names.
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]


class DataSpec(Strict):
    """What is read: a source, a tokenizer, windows of seq_len tokens, a fixed validation set."""

    source: str = "tfds:stdlib_sources"
    tokenizer: str = "bytes"
    seq_len: int = Field(gt=0)
    validation_tokens: int = Field(gt=0)


class Size(Strict):
    """One rung of the ladder. `tokens` overrides the study's tokens_per_param.

    `learning_rate` is for all variants but those that `learning_rates` gives one of their own.
    """

    d_model: int = Field(gt=0)
    n_layers: int = Field(gt=0)
    n_heads: int = Field(gt=0)
    n_kv_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)  # d_model / n_heads
    d_ff: int | None = Field(default=None, gt=0)
    learning_rate: float = Field(gt=0)
    learning_rates: dict[Label, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    batch_size: int | None = Field(default=None, gt=0)
    accumulate: int | None = Field(default=None, gt=0)  # 1
    tokens: int | None = Field(default=None, gt=0)


class Variant(Strict):
    """A residual connection and its options, written flat; the label is the default name."""

    residual: str
    options: dict[str, Any] = Field(default_factory=dict)


class Train(Strict):
    """The recipe, shared by all cells."""

    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float | None = Field(default=None, gt=0)  # overrides the ladder's
    schedule: Literal["cosine", "wsd"] = "cosine"
    warmup_fraction: float = Field(default=0.05, ge=0, lt=1)
    decay_fraction: float = Field(default=0.2, gt=0, le=1)  # of wsd
    final_learning_rate_fraction: float = Field(default=0.1, ge=0, le=1)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: float = Field(default=0.1, ge=0)
    decay_vectors: bool = False  # gains and pseudo-queries too
    clip_norm: float = Field(default=1.0, gt=0)
    batch_size: int = Field(default=16, gt=0)  # sequences
    accumulate: int | None = Field(default=None, gt=0)  # micro-batches a step; overrides too
    tokens_per_param: float = Field(default=20.0, gt=0)  # non-embedding, of the baseline
    log_every: int = Field(default=10, gt=0)
    checkpoint_every: int = Field(default=500, gt=0)
    # Steps between looks inside (see scaling/dynamics.py); 0: none, null: about 20 in a long run.
    dynamics_every: int | None = Field(default=None, ge=0)


class Mesh(Strict):
    """Devices by what is split over them; their product is the number of devices."""

    data: int = Field(default=1, gt=0)  # rows of the batch
    fsdp: int = Field(default=1, gt=0)  # rows of the batch, and parameters
    tensor: int = Field(default=1, gt=0)  # heads, d_ff and vocabulary
    sequence: int = Field(default=1, gt=0)  # positions


class Study(Strict):
    """Sizes x variants x seeds on one data set with one recipe."""

    name: Label
    baseline: Label
    data: DataSpec
    model: ModelSpec = ModelSpec()
    sizes: dict[Label, Size] = Field(min_length=1)
    # How the ladder's rates were chosen: variant -> size -> learning rate -> validation loss, null
    # where the run diverged.
    learning_rate_sweep: dict[str, dict[str, dict[float, float | None]]] = Field(
        default_factory=dict
    )
    variants: dict[Label, Variant] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    train: Train = Train()
    mesh: Literal["auto"] | Mesh = "auto"
    trackers: list[Literal["tensorboard", "wandb", "mlflow"]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.baseline not in self.variants:
            raise ValueError(
                f"baseline {self.baseline!r} is none of the variants; "
                + closest(self.baseline, self.variants)
            )
        # A ladder may serve studies that lack some of its variants, but not misspell one.
        for name in {
            *self.learning_rate_sweep,
            *(n for s in self.sizes.values() for n in s.learning_rates),
        }:
            meant = difflib.get_close_matches(name, self.variants, 1, cutoff=0.85)
            if name not in self.variants and meant:
                raise ValueError(
                    f"learning rates are given for {name!r}, which is none of the variants; did "
                    f"you mean {meant[0]!r}?"
                )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds} name a seed twice")
        return self


def load_study(path: str | Path, overrides: list[str] = ()) -> Study:
    """Reads and checks a study file, its ladder inlined and `--set` overrides applied.

    Args:
      path: a YAML file; its `ladder`, if any, is a path relative to it.
      overrides: `dotted.path=value` strings, values in YAML.

    Raises:
      UserError: the file cannot be read, a key is unknown (with the closest valid one), a value
        does not fit, or an override names no field.
    """
    path = Path(path)
    raw = read_yaml(path)
    for override in overrides:
        if override.startswith("ladder="):
            _apply(raw, override)
    if "ladder" in raw:
        ladder = path.parent / str(raw.pop("ladder"))  # relative to the study file
        for key, value in read_yaml(ladder).items():
            if key in raw:
                raise UserError(f"{path}: {key!r} stands both here and in its ladder {ladder}.")
            raw[key] = value
    for override in overrides:
        if not override.startswith("ladder="):
            _apply(raw, override)
    if isinstance(raw.get("variants"), dict):
        raw["variants"] = {k: _variant(k, v) for k, v in raw["variants"].items()}
    where = f"{path} with --set {' '.join(overrides)}" if overrides else str(path)
    try:
        return Study.model_validate(raw)
    except pydantic.ValidationError as error:
        # Of a mesh given as sizes, it also complains that they are not "auto".
        told = [e for e in error.errors() if e["type"] != "literal_error" or not _is_sizes(e)]
        lines = [f"{where}: {_sentence(e)}" for e in told]
        raise UserError("\n".join(dict.fromkeys(lines))) from error


def _is_sizes(error: dict) -> bool:
    return error["loc"][0] == "mesh" and isinstance(error["input"], dict)


def _variant(label: str, raw: Any) -> Any:
    """Splits a flat variant into the residual's name and its options."""
    if raw is None:
        return {"residual": label}
    if not isinstance(raw, dict):
        return raw
    options = {key: value for key, value in raw.items() if key != "residual"}
    return {"residual": raw.get("residual", label), "options": options}


def _apply(raw: dict, override: str) -> None:
    """Sets one dotted path of the raw study."""
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise UserError(
            f"--set {override!r}: needs the form path=value, as in train.clip_norm=0.5."
        )
    *parents, last = path.split(".")
    node = raw
    for depth, key in enumerate(parents):
        if key in node and node[key] in (None, "auto"):
            node[key] = {}  # a variant without options, or the mesh
        # A section left out of the file has defaults and may be set; a size or variant may not.
        child = node.setdefault(key, {}) if node is raw else node.get(key)
        if not isinstance(child, dict):
            place = ".".join(parents[: depth + 1])
            if key in node:
                raise UserError(f"--set {override!r}: {place!r} holds no keys.")
            raise UserError(f"--set {override!r}: there is no {key!r}; {closest(key, node)}")
        node = child
    node[last] = _value(override, text)


def _value(override: str, text: str) -> Any:
    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(f"--set {override!r}: the value is not YAML: {error}") from error


def _sentence(error: dict) -> str:
    """One pydantic error as a sentence with the path and, for an unknown key, the closest one."""
    # What else pydantic names are the alternatives of a union.
    location = [part for part in error["loc"] if part not in ("[key]", "Mesh", "literal['auto']")]
    path = ".".join(str(part) for part in location)
    if error["type"] == "extra_forbidden":
        fields = _fields_at(location[:-1])
        return f"unknown key {path!r}; {closest(location[-1], fields)}"
    if error["type"] in ("model_type", "literal_error") and path == "mesh":
        return (
            f"mesh is {error['input']!r}; it must be auto, or sizes such as {{fsdp: 8, tensor: 2}}."
        )
    if error["type"] == "missing":
        return f"{path!r} is required and missing."
    if error["type"] == "string_pattern_mismatch":
        return (
            f"{path!r} is {error['input']!r}; a name may hold letters, digits and . _ + - only, "
            "since folders are named after it."
        )
    message = error["msg"].removeprefix("Value error, ")
    return f"{path}: {message} (given {error['input']!r})." if path else f"{message}."


def _fields_at(location: list) -> list[str]:
    """The keys that are valid at a place in a study file."""
    sections = {
        "data": DataSpec, "model": ModelSpec, "sizes": Size, "variants": Variant, "train": Train,
        "mesh": Mesh,
    }  # fmt: skip
    if not location:
        return [*Study.model_fields, "ladder"]
    return list(sections.get(str(location[0]), Study).model_fields)


def read_yaml(path: Path) -> dict:
    """The keys of a YAML file.

    Raises:
      UserError: it cannot be read, or holds no keys.
    """
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror if isinstance(error, OSError) else error})."
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path}: must hold keys such as name, data and sizes; it holds {raw!r}.")
    return raw
