"""What is said of a cell that does not fit or cannot be compiled, and the width of it all."""

import pytest

from scaling.compile.report import add_ratios, amount, print_report, verdicts
from scaling.console import make_console

GIB = 2**30


def row(variant: str, **more) -> dict:
    memory = {"arguments": 3 * GIB, "outputs": 3 * GIB, "aliased": 3 * GIB, "temporaries": 9 * GIB,
              "code": 0, "peak": 12 * GIB, "hbm": 16 * GIB}  # fmt: skip
    return {
        "cell": f"d2048/{variant}/s0", "size": "d2048", "variant": variant, "seed": 0,
        "compile_seconds": 61.0, "fits": True, "memory": memory, "largest": [], "flops": 4e14,
        "analytic_flops": 3.9e14, "bytes": 2e12, "hbm_bytes": 1e12, "seconds": 1.25, "mfu": 0.42,
        "collectives": {"all-gather": {"bytes": 4e9, "count": 96.0},
                        "reduce-scatter": {"bytes": 4e9, "count": 96.0}},
        "collective_bytes": 8e9, "uncounted_loops": 0,
    } | more  # fmt: skip


def document(*rows: dict) -> dict:
    add_ratios(list(rows), "prenorm")
    chip = {"flops": 459e12, "hbm_bytes": 16 * GIB, "hbm_bandwidth": 2.7e12}
    mesh = {"data": 1, "fsdp": 16, "sequence": 1, "tensor": 2}
    return {"study": "table2", "topology": "v5p:2x4x4", "device_kind": "TPU v5", "n_devices": 32,
            "mesh": mesh, "chip": chip, "cells": list(rows)}  # fmt: skip


def test_ratios_are_to_the_baseline_of_the_size():
    rows = [row("prenorm"), row("attnres_block", seconds=1.5), row("x", size="other")]
    add_ratios(rows, "prenorm")
    assert rows[1]["ratio"] == {"seconds": 1.2, "bytes": 1.0, "hbm_bytes": 1.0}
    assert rows[2]["ratio"] is None


def test_the_report(capsys):
    print_report(make_console(), document(row("prenorm"), row("attnres_block", seconds=1.3)))
    text = capsys.readouterr().out
    assert text.startswith(
        "table2 on v5p:2x4x4: 32 x TPU v5, 17.2 GB each, mesh fsdp 16 x tensor 2"
    )
    lines = {
        line.split()[1]: line.split() for line in text.splitlines() if line.startswith("d2048")
    }
    assert lines["attnres_block"][2:] == ["96", "x:", "4.00", "96", "x:", "4.00", "8.00"]
    assert "1.040" in text
    assert max(map(len, text.splitlines())) <= 100


def test_what_does_not_fit_says_what_is_large_and_what_to_do():
    large = {"shape": "f32[16,4096,2048]", "bytes": 2 * 10**9, "count": 6, "where": "jvp()/softmax"}
    memory = {"arguments": None, "temporaries": None, "peak": 40 * 10**9, "hbm": 16 * 10**9}
    said = verdicts(row("prenorm", fits=False, largest=[large], memory=memory))
    assert said[0].startswith(
        "d2048/prenorm/s0 does not fit: it needs 40.00 GB of the 16.00 GB there are."
    )
    assert said[1] == "  12.00 GB  6 x f32[16,4096,2048]  jvp()/softmax"
    assert "--tune" in said[-1]


def test_a_cell_that_cannot_be_compiled_keeps_the_others(capsys):
    broken = {"cell": "d2048/mine/s0", "size": "d2048", "variant": "mine", "seed": 0,
              "compile_seconds": 1.0, "fits": None, "error": "INTERNAL: no such thing"}  # fmt: skip
    print_report(make_console(), document(row("prenorm"), broken))
    text = capsys.readouterr().out
    assert "d2048/mine/s0: cannot be compiled: INTERNAL: no such thing" in text
    assert "prenorm" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "?"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.0123, "0.01")],
)
def test_amounts_have_three_digits_or_fewer(value, text):
    assert amount(value, 1.0) == text
