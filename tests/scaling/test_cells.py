"""A cell's identity is what influences its result, and nothing else."""

import sys
import types

import jax.numpy as jnp
import pytest

from models.params import param
from models.residuals.prenorm import PreNorm
from models.residuals.reading import Reading
from scaling.cells import expand
from scaling.errors import UserError
from scaling.study import load_study


def ids(raw, write_study, **changes):
    return [cell.id for cell in expand(load_study(write_study({**raw, **changes})), 256)]


def test_labels_logging_and_spelt_out_defaults_do_not_change_identity(raw_study, write_study):
    def digests(raw):
        return [cell.digest for cell in expand(load_study(write_study(raw)), 256)]

    before = digests(raw_study)
    raw_study["name"] = "other"
    raw_study["train"] |= dict.fromkeys(("log_every", "checkpoint_every", "dynamics_every"), 7)
    raw_study["train"]["beta2"] = 0.95
    raw_study["sizes"] = {f"size-{k}": v for k, v in raw_study["sizes"].items()}
    assert digests(raw_study) == before


def test_what_influences_the_result_changes_identity(raw_study, write_study):
    cells = expand(load_study(write_study(raw_study)), 256)
    assert len({cell.digest for cell in cells}) == len(cells) == 9
    before = {cell.digest for cell in cells}
    for section, key, value in [
        ("train", "clip_norm", 2.0),
        ("train", "accumulate", 2),
        ("data", "seq_len", 16),
        ("data", "validation_tokens", 2048),
    ]:
        changed = {**raw_study, section: {**raw_study[section], key: value}}
        after = {cell.digest for cell in expand(load_study(write_study(changed)), 256)}
        assert not before & after, (section, key)


def test_all_variants_of_a_size_see_the_same_tokens(raw_study, write_study):
    for size in raw_study["sizes"].values():
        del size["tokens"]
    cells = expand(load_study(write_study(raw_study)), 256)
    by_size = {cell.size: set() for cell in cells}
    for cell in cells:
        by_size[cell.size].add((cell.steps, cell.tokens))
    assert all(len(budgets) == 1 for budgets in by_size.values())


def plug_in(**methods):
    """A module with a residual connection that differs from PreNorm in some methods."""
    module = types.ModuleType("plug_in_of_a_test")
    module.Mine = type("Mine", (PreNorm,), methods)
    return module


def with_parameter(axes):
    def init(self, cfg, key):
        PreNorm.__init__(self, cfg, key)
        self.scale = param(key, (3,), 1.0, axes=axes, group="vector")

    return {"__init__": init, "extra_params": classmethod(lambda cls, cfg: 3)}


def boom(*_):
    raise RuntimeError("boom")


PLUG_INS = {
    "segments": (
        {"segments": classmethod(lambda cls, cfg: [range(1)])},
        r"the segments of .* hold the sublayers \[0\], and must hold 0 to 3",
    ),
    "init": ({"__init__": boom}, "cannot be made: RuntimeError: boom"),
    "cost": ({"flops_per_token": classmethod(boom)}, "cannot be made: RuntimeError: boom"),
    "no number": (
        {"flops_per_token": classmethod(lambda cls, cfg: "many")},
        "flops_per_token of .* is 'many', and must be a finite number",
    ),
    "sources": (
        {"sources": classmethod(lambda cls, cfg: [(0,)])},
        r"sources of .* is \[\(0,\)\], and must be for each read a tuple of different numbers",
    ),
    "sources twice": (
        {"sources": classmethod(lambda cls, cfg: [(0, 0)] * (cfg.n_sublayers + 1))},
        "must be for each read a tuple of different numbers from 0 to 4",
    ),
    "another number of sources": (
        {
            "sources": classmethod(lambda cls, cfg: [(0, 1)] * (cfg.n_sublayers + 1)),
            "reading": lambda self, state, site: Reading([state.carry], jnp.zeros((1, 1, 1, 1))),
        },
        "`reading` of read 0 has 1 values, and `sources` names 2",
    ),
    "sources without a reading": (
        {"sources": classmethod(lambda cls, cfg: [(0,)] * (cfg.n_sublayers + 1))},
        "cannot be run: NotImplementedError",
    ),
    "unknown axis": (with_parameter(("bogus",)), r"with axes \('bogus',\); one name a dimension"),
    "too many axes": (with_parameter((None, None)), "one name a dimension is needed, of batch"),
    "a string": (with_parameter("embed"), "with axes 'embed'"),
}


@pytest.mark.parametrize("mistake", PLUG_INS)
def test_a_residual_that_is_not_as_it_says_is_refused(raw_study, write_study, monkeypatch, mistake):
    methods, sentence = PLUG_INS[mistake]
    monkeypatch.setitem(sys.modules, "plug_in_of_a_test", plug_in(**methods))
    raw_study["variants"]["mine"] = {"residual": "plug_in_of_a_test:Mine"}
    with pytest.raises(UserError, match=sentence):
        expand(load_study(write_study(raw_study)), 256, variants=["mine"])
