"""`make docs`: docs/variants.md and its picture, from what the residual connections say."""

import itertools
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from analysis.mixing import mixing_heatmaps
from analysis.style import save
from models.transformer import Transformer
from scaling.catalogue import Entry, Size, entries
from scaling.catalogue_text import as_yaml
from scaling.contract import Subject
from scaling.contract.checks import moved
from scaling.mixing import matrix, table

DOCS = Path(__file__).resolve().parent.parent / "docs"
SHOWN = {  # beside the default options
    "attnres_block": {"sublayers_per_block": 4},
    "attnres_swa": {"window": 3},
    "denseformer": {"dilation": 2},
    "ancre": {"tau": 1.0},
}


def main() -> None:
    """Writes the page and the picture."""
    (DOCS / "variants.md").write_text(markdown(), encoding="utf-8")
    matrices = {entry.name: _matrix(entry.name) for entry in entries(Size())}  # by family
    picture = mixing_heatmaps(table(matrices), columns=7)
    for path in save(picture, DOCS / "images", "mixing"):
        if path.suffix == ".svg":
            path.unlink()


def _matrix(name: str) -> np.ndarray:
    """Six layers as made, all mixing parameters moved at random."""
    cfg = Subject(name, SHOWN.get(name)).cfg(n_layers=6, seq_len=16)
    model = Transformer(cfg, jax.random.key(0))
    model.residual = moved(model.residual, spread=0.3)
    tokens = np.random.default_rng(0).integers(0, cfg.vocab_size, (4, 16), dtype=np.int32)
    return matrix(cfg, nnx.to_pure_dict(nnx.split(model)[1]), tokens)


def markdown() -> str:
    """docs/variants.md."""
    size = Size()
    found = entries(size)
    lines = [_HEAD.format(d_model=size.d_model, n_layers=size.n_layers)]
    for family, members in itertools.groupby(found, key=lambda entry: entry.family):
        lines += [f"## {family.capitalize()}", "", *_family_table(list(members)), ""]
    shown = ", ".join(f"`{name}` with `{as_yaml(options)}`" for name, options in SHOWN.items())
    lines += [_PICTURE.format(shown=shown), "## Options and choices", ""]
    for entry in found:
        lines += _section(entry)
    return "\n".join(lines).rstrip() + "\n"


def _family_table(members: list[Entry]) -> list[str]:
    rows = ["| variant | equation | PreNorm at init | parameters | FLOPs | I/O | source |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for entry in members:
        io = "n/d" if entry.io_per_token is None else f"{entry.io_per_token:.3g}d"
        cells = (
            f"[`{entry.name}`](#{entry.name})", _plain(entry.equation), _reduction(entry),
            f"{entry.own_params:+,}", f"{entry.train_flops - 1:+.2%}", io, _plain(entry.source),
        )  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _reduction(entry: Entry) -> str:
    """Yes, no, or which of the examples differ."""
    others = [label for label, example in entry.examples.items()
              if label and example["prenorm_at_init"] != entry.prenorm_at_init]  # fmt: skip
    word = "yes" if entry.prenorm_at_init else "no"
    return (
        f"{word}, but not: {', '.join(others)}".replace("no, but not", "no, but")
        if others
        else word
    )


def _section(entry: Entry) -> list[str]:
    lines = [f"### {entry.name}", "", f"{entry.summary[0].upper()}{entry.summary[1:]}."]
    lines += ["", entry.notes] if entry.notes else []
    if entry.options:
        lines += ["", entry.about_options, "", "| option | default | valid |", "|---|---|---|"]
        lines += [
            f"| `{name}` | `{about['default']}` | {_plain(about['type'])} |"
            for name, about in entry.options.items()
        ]
        examples = [
            f"{label} `{as_yaml(example['options'])}`"
            for label, example in entry.examples.items()
            if example["options"]
        ]
        if examples:
            lines += ["", "As in: " + ", ".join(examples) + "."]
    return [*lines, ""]


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


_HEAD = """# The residual connections

<!-- Made by `make docs`; a test keeps it current. -->

`x` or `X` is the residual stream, `h_l` the input of sublayer `l` (attention and MLP are one each),
`f_l` the sublayer with its input norm unless said otherwise, `v_0` the embedding and `v_i` the
output of sublayer `i`, `Norm` an RMSNorm without gain. There are `L` layers and `S = 2L`
sublayers; what numbers whole layers says so.

*PreNorm at init* says whether the model is PreNorm before its first update: the same loss and the
same gradients of all shared weights, to 1e-5. A "no" is deliberate: the source starts elsewhere.
Parameters and training FLOPs are against PreNorm's at d_model {d_model} and n_layers {n_layers};
I/O is what the mechanism reads and writes per token and sublayer, in units of d_model (Table 1 of
the AttnRes paper counts so). Every variant passes the contract of
[your-own-variant.md](your-own-variant.md), and agrees to 1e-5 with a float64 derivation written
from its equations (`tests/models/derivations`).

Left out: *Dreamer* (arXiv 2601.21582), whose depth attention has no public equations.
"""

_PICTURE = """## What each sublayer reads

![Depth-mixing matrices of all variants](images/mixing.png)

*The contribution of source i (across: the embedding, then every output) to the input of sublayer l
(down; the last row is the readout), in shares of the row's largest.* PreNorm's is all ones; gates
fade what is old; Block's sources come in blocks, a window leaves out what lies between it and the
embedding; those that act inside of attention (`lime`, `value_residual`) leave the
stream as PreNorm's. Six layers at initialisation, with all mixing parameters moved at random, to
show what a variant can express. What it learns: `scaling mixing-matrix runs/STUDY`. Drawn are the
default options, but {shown}.
"""


if __name__ == "__main__":
    main()
