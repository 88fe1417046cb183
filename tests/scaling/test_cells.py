"""A cell's identity is what influences its result, and nothing else."""

from scaling.cells import expand
from scaling.study import load_study


def ids(raw, write_study, **changes):
    return [cell.id for cell in expand(load_study(write_study({**raw, **changes})), 256)]


def test_labels_logging_and_spelt_out_defaults_do_not_change_identity(raw_study, write_study):
    def digests(raw):
        return [cell.digest for cell in expand(load_study(write_study(raw)), 256)]

    before = digests(raw_study)
    raw_study["name"] = "other"
    raw_study["train"]["log_every"] = raw_study["train"]["checkpoint_every"] = 7
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
