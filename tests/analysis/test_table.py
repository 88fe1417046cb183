import csv as csv_module
import os
import pickle

import numpy as np
import pandas as pd
import pytest

from analysis import Refusal, load, numbers, reading
from analysis.cells import pair
from analysis.table import FLOP_PER_PFLOPS_DAY, baseline

ROWS = "variant,size,loss,pflops_days\nprenorm,a,1.9,0.5\nprenorm,b,1.8,1\nprenorm,c,1.7,2\n"


@pytest.fixture
def csv(tmp_path):
    def write(text, name="results.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


def refused(source, **kwargs) -> Refusal:
    with pytest.raises(Refusal) as e:
        load(source, **kwargs)
    return e.value


def test_published_table():
    df = load("attnres_table2_6nd")
    assert list(df.columns[:6]) == ["variant", "size", "seed", "loss", "train_flops", "pflops_days"]
    assert list(df["variant"].unique()) == ["prenorm", "attnres_block", "attnres_full", "mhc_lite"]
    expected = 6.0 * df["n_params_non_embedding"] * df["tokens"]
    assert np.allclose(df["train_flops"], expected, rtol=1e-14)
    assert df.attrs["flops_convention"] == "6nd"


def test_run_directory_and_csv_are_the_same(csv):
    path = csv(ROWS)
    assert load(path).equals(load(path.parent))
    assert load(str(path)).attrs["sha256"] == load(path.parent).attrs["sha256"]


@pytest.mark.parametrize(
    "text",
    [
        "﻿" + ROWS,
        "# a comment, with commas\n\n" + ROWS.replace("\n", "\r\n"),
        ROWS.replace(",", ";"),
        ROWS.replace(",", ";").replace(".", ","),
        ROWS.replace(",", "\t"),
        ROWS.replace(",", " , "),
        ROWS.replace("prenorm", '"prenorm"'),
    ],
    ids=["bom", "comment-crlf", "semicolon", "decimal-comma", "tab", "spaces", "quotes"],
)
def test_ways_of_writing_the_same_table(csv, text):
    df = load(csv(text))
    assert df["loss"].tolist() == [1.9, 1.8, 1.7]
    assert df["pflops_days"].tolist() == [0.5, 1, 2]
    assert df["train_flops"].tolist() == [0.5 * 8.64e19, 8.64e19, 2 * 8.64e19]
    assert df["variant"].tolist() == ["prenorm"] * 3
    assert df["size"].tolist() == ["a", "b", "c"]


def test_other_columns_are_kept_with_their_type(csv):
    text = ROWS.replace("days\n", "days,note,steps\n", 1)
    for value in ("0.5", ",1", ",2"):
        text = text.replace(f"{value}\n", f"{value},ok,300\n", 1)
    df = load(csv(text))
    assert df["note"].tolist() == ["ok"] * 3
    assert df["steps"].tolist() == [300] * 3


def test_validation_loss_is_the_loss_and_the_other_is_kept(csv):
    df = load(csv("variant,loss,val_loss,train_flops\nx,5,1.5,1e19\n"))
    assert (df["loss"][0], df["train_loss"][0]) == (1.5, 5)
    assert df.attrs["loss_column"] == "val_loss"


def test_loading_a_loaded_table_changes_nothing():
    df = load("attnres_table2")
    again = load(df)
    pd.testing.assert_frame_equal(again, df)
    assert again.attrs["flops_convention"] == "6nd + attention"


def test_unfinished_runs_are_left_out_and_counted(csv):
    text = (
        "variant,loss,train_flops,status\nx,1.9,1e19,done\nx,,2e19,failed\nx,nan,3e19,failed\n"
        "x,1,4e19,\n"
    )
    df = load(csv(text))
    assert len(df) == 1
    assert df.attrs["excluded"] == {"failed": 2, "(blank)": 1}
    error = refused(csv(text.replace("done", "running")))
    assert error.code == "no-finished-runs"
    assert "2 failed" in str(error) and "1 running" in str(error)


class TestSizes:
    def table(self, computes: dict[str, list[float]]):
        rows = [(v, 1.5, c) for v, cs in computes.items() for c in cs]
        return load(pd.DataFrame(rows, columns=["variant", "loss", "pflops_days"]))

    def test_are_numbered_by_compute_where_variants_line_up(self):
        df = self.table({"a": [4, 1, 2], "b": [1.1, 2.2, 4.4]})
        assert df["size"].tolist() == ["#1", "#2", "#3"] * 2

    def test_are_named_by_compute_where_they_do_not(self):
        for b in ([1, 2], [1, 2, 40]):
            df = self.table({"a": [1, 2, 4], "b": b})
            labels = df.groupby("variant")["size"].agg(set)
            assert labels["a"] & labels["b"] == {"1 PFLOP/s-days", "2 PFLOP/s-days"}

    def test_are_text_even_where_they_are_numbers(self, csv):
        df = load(csv("variant,size,loss,pflops_days\nx,10,1.9,1\nx,9,1.8,2\n"))
        assert df["size"].tolist() == ["10", "9"]


class TestCompute:
    def text(self, days):
        return f"variant,loss,train_flops,pflops_days\nx,1.9,{FLOP_PER_PFLOPS_DAY},{days}\n"

    def test_rounded_days_agree_and_flops_win(self, csv):
        assert load(csv(self.text(0.998)))["pflops_days"][0] == 1.0

    def test_a_wrong_unit_is_refused(self, csv):
        error = refused(csv(self.text(86400)))
        assert error.code == "compute-disagrees"
        assert "Line 2" in str(error) and "8.64e+04" in str(error)


@pytest.mark.parametrize(
    ("cell", "code", "say"),
    [
        ("2.1%", "not-a-number", "'2.1%'"),
        ("1,9", "ragged-row", "Line 4"),
        ("diverged", "not-a-number", "'diverged'"),
        ("", "missing-value", "empty"),
        ("nan", "not-finite", "diverged run"),
        ("inf", "not-finite", "inf"),
        ("0", "not-positive", "above 0"),
        ("-1.9", "not-positive", "-1.9"),
    ],
)
def test_bad_cells_are_named_by_line_and_value(csv, cell, code, say):
    """The comment shifts the lines: the number is that of the file."""
    error = refused(csv("# note\n" + ROWS.replace("1.8", cell)))
    assert error.code == code
    assert "Line 4" in str(error) and say in str(error)
    if code != "ragged-row":
        assert "`loss`" in str(error)


@pytest.mark.parametrize("cell", ["0", "-1", "x", ""])
def test_bad_compute_is_named(csv, cell):
    error = refused(csv(f"variant,loss,train_flops\nx,1.9,{cell}\n"))
    assert "`train_flops`" in str(error) and "Line 2" in str(error)


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ("flops_convention", "mixed-flops-convention"),
        ("data_fingerprint", "mixed-data-fingerprint"),
    ],
)
def test_mixtures_are_refused_by_name(csv, column, code):
    text = f"variant,size,loss,train_flops,{column}\nx,a,1.9,1e19,6nd\nx,b,1.8,2e19,with_head\n"
    error = refused(csv(text))
    assert error.code == code
    assert "'6nd', 'with_head'" in str(error)
    blank = refused(csv(text.replace("with_head", "")))
    assert "'(blank)', '6nd'" in str(blank)
    if column == "data_fingerprint":
        assert len(load(csv(text), allow_mixed_data=True)) == 2


def test_repeated_cells(csv):
    text = ROWS + "prenorm,b,1.81,1\n"
    error = refused(csv(text))
    assert error.code == "duplicate-cells"
    assert "Line 3" in str(error) and "Line 5" in str(error) and "`seed` column" in str(error)
    with_seed = "\n".join(
        line + (",seed" if i == 0 else ",7") for i, line in enumerate(text.splitlines())
    )
    assert "size 'b', seed 7" in str(refused(csv(with_seed)))
    assert len(load(csv(with_seed[:-1] + "8"))) == 4


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("variant,lr,train_flops", "`val_loss` or `loss`"),
        ("variant,loss,flops", "`train_flops` or `pflops_days`"),
        ("model,loss,train_flops", "`variant`"),
    ],
)
def test_missing_columns_are_named_with_those_found(csv, header, wanted):
    error = refused(csv(header + "\nx,1,1\n"))
    assert error.code == "missing-columns"
    assert wanted in str(error)
    assert all(f"'{c}'" in str(error) for c in header.split(","))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("# only a comment\n\n", "empty"),
        ("variant,loss,train_flops\n", "empty"),
        ("variant,loss,loss\nx,1,2\n", "repeated-columns"),
        ("variant,loss,train_flops\nx,1.9\n", "ragged-row"),
        ("variant,loss,train_flops\n,1.9,1e19\n", "missing-value"),
        ("variant,loss,train_flops\n#1,1.9,1e19\n", "comment-or-row"),
        ("variant,loss,train_flops\nx,1.9,1e19\n # x,1.8,2e19\n", "comment-or-row"),
        ('variant,loss,train_flops\nx,1.9,1e19\nx,1.8,"2e19\nx,1.7,4e19\n', "unreadable"),
        (
            f"variant,loss,train_flops\nx{'y' * csv_module.field_size_limit()},1,1e19\n",
            "unreadable",
        ),
        ("\0\0", "unreadable"),
    ],
)
def test_files_that_are_no_table(csv, text, code):
    path = csv(text)
    error = refused(path)
    assert error.code == code
    assert str(path) in str(error)


def test_another_encoding(csv):
    error = refused(csv("variant,löss\n", encoding="latin-1"))
    assert error.code == "unreadable" and "UTF-8" in str(error)


def test_sources_that_are_not_there(tmp_path):
    unknown = refused("attnres_table")
    assert unknown.code == "unknown-table" and "Did you mean 'attnres_table2'" in str(unknown)
    assert refused(tmp_path / "x.csv").code == "no-such-file"
    empty = refused(tmp_path)
    assert empty.code == "no-results" and f"scaling results {tmp_path}" in str(empty)
    assert refused(pd.DataFrame({"variant": []})).code == "empty"


def test_baseline():
    df = pd.DataFrame({"variant": ["a", "PreNorm", "attnres"]})
    assert baseline(df) == "PreNorm"
    assert baseline(df, "a") == "a"
    with pytest.raises(Refusal, match="Did you mean 'attnres'"):
        baseline(df, "atnres")
    with pytest.raises(Refusal, match="'a', 'b'") as e:
        baseline(pd.DataFrame({"variant": ["a", "b"]}))
    assert e.value.code == "no-baseline"


def test_a_refusal_survives_pickling():
    error = pickle.loads(pickle.dumps(Refusal("code", "sentence")))
    assert (error.code, str(error)) == ("code", "sentence")


def test_results_older_than_a_summary_are_refused(tmp_path):
    results, summary = tmp_path / "results.csv", tmp_path / "cell" / "summary.json"
    results.write_text("variant,size,train_flops,loss\nprenorm,a,1e18,2.0\n")
    summary.parent.mkdir()
    summary.write_text("{}")
    assert len(load(tmp_path)) == 1
    os.utime(summary, (results.stat().st_mtime + 60,) * 2)
    with pytest.raises(Refusal, match=f"scaling results {tmp_path}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("header", "value", "say"),
    [
        ("train_flops", "5.6", "`train_flops` is 5.6, which looks like PFLOP/s-days"),
        ("pflops_days", "4.5e19", "`pflops_days` is 4.5e+19, which looks like FLOP"),
    ],
)
def test_a_unit_that_cannot_be_is_named(csv, header, value, say):
    fine = "4e19" if header == "train_flops" else "0.5"
    error = refused(csv(f"variant,loss,{header}\nx,1.9,{fine}\nx,1.8,{value}\n"))
    assert error.code == "compute-unit" and say in str(error) and "Line 3" in str(error)


def test_losses_in_bits_are_not_taken_for_nats(csv):
    error = refused(csv("variant,bits_per_byte,train_flops\nx,1.9,1e19\n"))
    assert "`bits_per_byte` seems to be in bits: nats are bits times 0.6931" in str(error)


def test_blank_seeds_and_sizes(csv):
    error = refused(csv("variant,seed,loss,train_flops\nx,1,1.9,1e19\nx,,1.8,2e19\n"))
    assert error.code == "missing-value" and "`seed` is empty" in str(error)
    df = load(csv("variant,seed,loss,train_flops\nx,,1.9,1e19\nx,,1.8,2e19\n"))
    assert df["seed"].tolist() == [0, 0]


def test_computes_within_a_per_cent_are_one_size(csv):
    rows = "".join(
        f"{v},{s},{loss - 0.01 * s},{c * (1 + 1e-7 * s)}\n"
        for v in ("a", "b") for c, loss in ((1e18, 2.0), (4e18, 1.9), (1.6e19, 1.8)) for s in (0, 1)
    )  # fmt: skip
    assert load(csv("variant,seed,loss,train_flops\n" + rows))["size"].nunique() == 3


def test_a_size_whose_seeds_differ_in_compute_is_refused(csv):
    error = refused(csv("variant,size,seed,loss,train_flops\nx,S,0,1.9,1e19\nx,S,1,1.8,2e19\n"))
    assert error.code == "mixed-size" and "2-fold" in str(error)


def test_underscores_are_no_digits(csv):
    assert refused(csv("variant,loss,train_flops\nx,3_1,1e19\n")).code == "not-a-number"


def test_comments_below_the_header_and_names_with_a_hash(csv):
    first, *rows = ROWS.splitlines()
    noted = "\n".join([first, "# by hand", *rows, "#, twice", ""])
    assert load(csv(noted)).equals(load(csv(ROWS)))
    assert load(csv(ROWS.replace("prenorm", '"#1"')))["variant"].tolist() == ["#1"] * 3
    held = 'variant,note,loss,train_flops\nx,"a\n# b",1.9,1e19\ny,c,1.8,1e19\n'
    assert load(csv(held))["note"].tolist() == ["a\n# b", "c"]


def test_an_open_quote_or_a_long_cell_is_named_by_line(csv):
    assert "line 3" in str(refused(csv(ROWS.replace("prenorm,b", 'prenorm,"b'))))
    long = ROWS.replace("1.8", "1" * (csv_module.field_size_limit() + 1))
    assert "Line 3" in str(refused(csv(long))) and "field limit" in str(refused(csv(long)))


def test_a_plain_file_is_read_without_a_loop_over_rows(csv, monkeypatch):
    """And to the same table as by the loops, which know quotes and find the line at fault."""
    quoted = load(csv(ROWS.replace("prenorm", '"prenorm"')))
    monkeypatch.setattr(numbers, "_number", None)
    only_header = lambda path, lines, delimiter: iter([(1, lines[0].split(delimiter))])  # noqa: E731
    monkeypatch.setattr(reading, "_rows", only_header)
    pd.testing.assert_frame_equal(load(csv(ROWS)), quoted)


def test_pairs_of_seeds_in_any_order():
    rows = [("a", "S", 0, 1.0), ("a", "S", 1, 2.0), ("b", "S", 2, 3.0), ("b", "S", 1, 4.0)]
    rows += [("a", "T", 0, 1.5), ("b", "T", 9, 1.6), ("b", "U", 0, 1.7)]
    df = pd.DataFrame(rows, columns=["variant", "size", "seed", "loss"])
    df["pflops_days"] = df["size"].map({"S": 2.0, "T": 1.0, "U": 3.0})
    pairs = pair(df, ["a", "b"])
    assert (pairs.sizes, pairs.dropped) == (("T", "S"), ("U",))
    assert (pairs.n_seeds, pairs.seeds_paired) == ((1, 1), (False, True))
    assert {v: [x.tolist() for x in of] for v, of in pairs.losses.items()} == {
        "a": [[1.5], [2.0]],
        "b": [[1.6], [4.0]],
    }
    assert pair(df, ["a", "nobody"]).sizes == ()


class TestDataFrames:
    def table(self, **columns):
        given = {"variant": ["x", "y"], "loss": [1.9, 1.8], "train_flops": [1e19, 1e19]}
        return pd.DataFrame(given | columns)

    def test_names_of_columns_that_are_no_text(self):
        error = refused(self.table().rename(columns={"loss": 7}))
        assert error.code == "column-names" and "'7'" in str(error)

    def test_repeated_columns(self):
        assert refused(pd.concat([self.table()] * 2, axis=1)).code == "repeated-columns"

    @pytest.mark.parametrize("missing", [None, np.nan, pd.NA, "", " "])
    def test_a_variant_without_a_name(self, missing):
        error = refused(self.table(variant=pd.Series(["x", missing], dtype=object)))
        assert error.code == "missing-value" and "Row 1: `variant` is empty" in str(error)

    @pytest.mark.parametrize("missing", [None, pd.NA])
    def test_a_missing_loss(self, missing):
        error = refused(self.table(loss=pd.Series([1.9, missing], dtype=object)))
        assert error.code == "missing-value" and "Row 1: `loss`" in str(error)

    def test_missing_words_are_blank(self):
        df = load(self.table(status=["done", None], flops_convention=[None, None]))
        assert df.attrs["excluded"] == {"(blank)": 1}
        assert df.attrs["flops_convention"] is None

    def test_seeds_of_words_and_numbers(self):
        df = load(self.table(variant=["x", "x"], size=["S", "S"], seed=pd.Series(["b", 1])))
        assert df["seed"].tolist() == ["1", "b"]


def test_computes_that_are_beyond_a_ratio(csv):
    assert len(load(csv("variant,loss,pflops_days\nx,1.9,1e-310\nx,1.8,1\n"))) == 2


def test_variants_in_another_unit_are_refused(csv):
    rows = "variant,size,loss,train_flops\nx,S,1.9,1e19\ny,S,1.8,1e16\n"
    error = refused(csv(rows))
    assert error.code == "compute-unit" and "1e+03-fold" in str(error)


def test_a_bad_loss_is_called_by_its_columns_name(csv):
    error = refused(csv("variant,val_loss,loss,train_flops\nx,NA,1.9,1e19\n"))
    assert "`val_loss` is 'NA'" in str(error)


def test_no_source_is_not_this_folder():
    with pytest.raises(Refusal, match="source is empty"):
        load("")
