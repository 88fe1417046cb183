"""Study files: what they mean, and a sentence for everything that can be wrong with one."""

from pathlib import Path

import pytest
import yaml

from models.residuals import find
from scaling.cells import expand
from scaling.errors import UserError
from scaling.study import load_study

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
# The rates of one are a paper's, those of the others have not been swept, as they say themselves.
UNSWEPT = ("table2-dense", "ablations", "isoflop")
SWEPT = [path for path in CONFIGS if path.stem not in UNSWEPT]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_studies_are_valid_and_blocks_differ_from_full(path):
    study = load_study(path)
    cells = expand(study, 256)
    assert len(cells) == len(study.sizes) * len(study.variants) * len(study.seeds)
    for cell in cells:
        if cell.model.residual.name == "attnres_block":
            assert find("attnres_block").block_size(cell.model) >= 2
    header = path.read_text(encoding="utf-8").split("\nname:")[0]
    assert "scaling launch" in header and "result" in header
    assert "duration" in header or "cost" in header


def test_the_cpu_study_spans_what_a_scaling_law_needs():
    cells = expand(load_study(CONFIGS[0].parent / "cpu.yaml"), 256, variants=["prenorm"], seeds=[0])
    from scaling.flops import count_params

    params = [count_params(cell.model)[1] for cell in cells]
    assert len(cells) == 5
    assert params[-1] >= 10 * params[0]
    assert cells[-1].train_flops >= 100 * cells[0].train_flops
    for cell, n in zip(cells, params, strict=True):
        assert cell.tokens / n == pytest.approx(20, rel=0.01)


@pytest.mark.parametrize("path", SWEPT, ids=lambda path: path.stem)
def test_learning_rates_follow_from_the_sweep_in_the_ladder(path):
    """Within 0.01 nats of the best rate that was tried."""
    study = load_study(path)
    assert study.learning_rate_sweep
    for size, losses in study.learning_rate_sweep["prenorm"].items():
        chosen = study.sizes[size].learning_rate
        assert losses[chosen] <= min(losses.values()) + 0.01, size


BAD = {
    "mesh": (lambda r: r.update(mesh="fsdp8"), ["mesh is 'fsdp8'; it must be auto, or sizes"]),
    "mesh axis": (lambda r: r.update(mesh={"foo": 2}), ["unknown key 'mesh.foo'", "fsdp"]),
    "mesh size": (lambda r: r.update(mesh={"data": 0}), ["mesh.data", "greater than 0", "given 0"]),
    "sublayers a block": (
        lambda r: r["variants"].update(attnres_block={"sublayers_per_block": 5}),
        ["sublayers_per_block 5 is more than the 4 sublayers"],
    ),
    "unknown key": (
        lambda r: r["train"].update(clip=1),
        ["train.clip", "did you mean 'clip_norm'"],
    ),
    "unknown section": (lambda r: r.update(trian={}), ["'trian'", "did you mean 'train'"]),
    "unknown size key": (
        lambda r: r["sizes"]["d8"].update(d_modle=3),
        ["sizes.d8.d_modle", "did you mean 'd_model'"],
    ),
    "missing key": (lambda r: r["sizes"]["d8"].pop("d_model"), ["'sizes.d8.d_model'", "missing"]),
    "wrong type": (lambda r: r["train"].update(batch_size="many"), ["train.batch_size", "'many'"]),
    "negative": (lambda r: r["train"].update(batch_size=-1), ["train.batch_size", "given -1"]),
    "unsafe name": (lambda r: r.update(name="../up"), ["'name'", "../up", "letters"]),
    "no baseline": (lambda r: r.update(baseline="prenrm"), ["prenrm", "did you mean 'prenorm'"]),
    "variants as a list": (lambda r: r.update(variants=["prenorm"]), ["variants", "dictionary"]),
    "seed twice": (lambda r: r.update(seeds=[1, 1]), ["seeds [1, 1]", "twice"]),
    "unknown residual": (
        lambda r: r["variants"].update(x={"residual": "attnres_ful"}),
        ["'x'", "did you mean 'attnres_full'"],
    ),
    "unknown option": (
        lambda r: r["variants"]["attnres_block"].update(n_block=2),
        ["attnres_block", "'n_block'", "did you mean 'n_blocks'"],
    ),
    "option of none": (
        lambda r: r["variants"].update(prenorm={"n_blocks": 2}),
        ["prenorm has no option 'n_blocks'", "it has none"],
    ),
    "blocks do not divide": (
        lambda r: r["variants"]["attnres_block"].update(n_blocks=3),
        ["d8", "n_blocks 3 does not divide the 4 sublayers"],
    ),
    "option of a wrong type": (
        lambda r: r["variants"]["attnres_block"].update(n_blocks="two"),
        ["n_blocks", "'two'"],
    ),
    "heads do not divide": (
        lambda r: r["sizes"]["d8"].update(n_heads=3),
        ["d8", "d_model 8 is not divisible by n_heads 3"],
    ),
    "less than a batch": (
        lambda r: r["sizes"]["d8"].update(tokens=50),
        ["d8", "50 tokens", "4 x 32 = 128 tokens"],
    ),
    "accumulate": (lambda r: r["train"].update(accumulate=3), ["accumulate 3", "batch of 4"]),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD)
def test_bad_studies_are_refused_in_a_sentence(raw_study, write_study, change, words):
    change(raw_study)
    with pytest.raises(UserError) as error:
        expand(load_study(write_study(raw_study)), 256)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.learning_rte=1", ["train.learning_rte", "did you mean 'learning_rate'"]),
        ("sizes.d9.tokens=1", ["no 'd9'", "did you mean"]),
        ("variants.attnres_blok.n_blocks=1", ["no 'attnres_blok'", "'attnres_block'"]),
        ("train.batch_size", ["path=value"]),
        ("tain.batch_size=1", ["'tain'", "did you mean 'train'"]),
        ("train.batch_size=[", ["not YAML"]),
    ],
)
def test_bad_overrides_are_refused(raw_study, write_study, override, words):
    with pytest.raises(UserError) as error:
        load_study(write_study(raw_study), [override])
    for word in words:
        assert word in str(error.value)


def test_overrides_reach_every_section(raw_study, write_study):
    overrides = [
        "train.learning_rate=3e-3",
        "sizes.d8.d_model=24",
        "variants.attnres_block.n_blocks=4",
        "model.qk_norm=false",
        "seeds=[3, 4]",
        "sizes.d12.tokens=1e4",
        "variants.prenorm={residual: attnres_full}",
    ]
    study = load_study(write_study(raw_study), overrides)
    assert study.train.learning_rate == 3e-3
    assert study.sizes["d8"].d_model == 24
    assert study.variants["attnres_block"].options == {"n_blocks": 4}
    assert study.model.qk_norm is False
    assert study.seeds == [3, 4]
    assert study.sizes["d12"].tokens == 10_000
    assert study.variants["prenorm"].residual == "attnres_full"


def test_yaml_may_merge_and_a_ladder_be_overridden(raw_study, write_study, tmp_path):
    sizes = raw_study.pop("sizes")
    (tmp_path / "ladder.yaml").write_text(yaml.safe_dump({"sizes": sizes}, sort_keys=False))
    path = write_study({**raw_study, "ladder": "none.yaml"})
    (tmp_path / "merged.yaml").write_text(
        "sizes:\n  a: &a {d_model: 8, n_layers: 2, n_heads: 1, learning_rate: 1.0e-2}\n"
        "  b: {<<: *a, d_model: 12}\n"
    )
    assert list(load_study(path, ["ladder=ladder.yaml"]).sizes) == list(sizes)
    assert load_study(path, ["ladder=merged.yaml"]).sizes["b"].n_layers == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\nname: b\n", ["'name' stands twice"]),
        ("name: [", ["not valid YAML"]),
        ("- a\n", ["must hold keys"]),
        ("", ["must hold keys"]),
        ("ladder: nowhere.yaml\n", ["nowhere.yaml", "cannot be read"]),
    ],
)
def test_files_that_are_no_study(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        load_study(path)
    for word in words:
        assert word in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_study(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"sizes": ["d9"]}, ["no size 'd9'"]),
        ({"variants": ["attnres"]}, ["no variant 'attnres'", "did you mean 'attnres_"]),
        ({"seeds": [7]}, ["no seed 7", "valid: 0"]),
    ],
)
def test_unknown_selections(raw_study, write_study, selection, words):
    with pytest.raises(UserError) as error:
        expand(load_study(write_study(raw_study)), 256, **selection)
    for word in words:
        assert word in str(error.value)
