"""What `scaling compile` says: a row a cell for people, and a document for programs.

The document (`--json`), sizes in bytes, times in seconds, all per device and for one step:
  study, topology, device_kind, n_devices, mesh (sizes by axis; null where cells differ), chip
  (flops, hbm_bytes, hbm_bandwidth; null where unknown), jax_version, tune (null without --tune;
  see `tune`) and cells: a list of
    cell, size, variant, seed, accumulate, remat, mesh
    compile_seconds
    fits: true, false, or null where the device's memory is unknown or `error` says what else failed
    memory: arguments, outputs, aliased (outputs that reuse arguments), temporaries, code,
      peak (their sum, aliased once; of a program that does not fit, what its buffers take), hbm
    refusal: of a program that the compiler gave up, what it said of its memory
    largest: of a program that does not fit, [shape, bytes, count, where], largest first
    flops: of matrix products, convolutions and kernels
    analytic_flops: forward + backward with head, with masked scores where attention computes them
    bytes: read and written by all instructions; hbm_bytes: the part in main memory
    collectives: {kind: {bytes sent, count}}; collective_bytes: their sum
    seconds: by XLA's own rule (`optimal_seconds`), loops taken as often as they run
    schedule_seconds: by the TPU scheduler's estimate of each fusion's cycles
    mfu: model FLOPs, causal and with head, in `seconds`, over the chip's peak
    uncounted_loops: loops counted as one run
    ratio: {seconds, bytes, hbm_bytes} to the baseline of the same size; null without it
"""

from scaling.compile.collectives import KINDS
from scaling.console import make_table
from scaling.display import duration

_GB = 1e9


def add_ratios(rows: list[dict], baseline: str) -> None:
    """Sets each row's `ratio` to the baseline of its size."""
    bases = {row["size"]: row for row in rows if row["variant"] == baseline}
    for row in rows:
        base = bases.get(row["size"])
        row["ratio"] = base and {
            key: row[key] / base[key] if row.get(key) and base.get(key) else None
            for key in ("seconds", "bytes", "hbm_bytes")
        }


def is_good(row: dict) -> bool:
    """Whether a cell compiles and, as far as is known, fits."""
    return row["fits"] is not False and not row.get("error")


def print_report(console, document: dict) -> None:
    """The header, a row a cell, collectives by kind, and what to do about what does not fit."""
    chip, rows = document["chip"], document["cells"]
    mesh = "of each size's own"
    if document["mesh"]:
        split = [f"{axis} {size}" for axis, size in document["mesh"].items() if size > 1]
        mesh = " x ".join(split) or "data 1"
    memory = f"{chip['hbm_bytes'] / _GB:.1f} GB each" if chip else "memory unknown"
    console.print(
        f"{document['study']} on {document['topology']}: {document['n_devices']} x "
        f"{document['device_kind']}, {memory}, mesh {mesh}. Per device and step:",
        markup=False,
    )
    good = [row for row in rows if "memory" in row]
    if good:
        console.print(_cells(good), markup=False)
        if any(row["collectives"] for row in good):
            console.print(_collectives(good), markup=False)
    for row in rows:
        for sentence in verdicts(row):
            console.print(sentence, markup=False)
    for sentence in _notes(document):
        console.print(sentence, markup=False, style="dim")


def _cells(rows: list[dict]):
    columns = {"size": "left", "variant": "left"} | dict.fromkeys(
        ("args", "temps", "peak GB", "fits", "TFLOP", "/calc", "GB", "/base", "ms", "/base ", "MFU",
         "built"), "right")  # fmt: skip
    table = make_table("", columns)
    for row in rows:
        memory, ratio = row["memory"], row["ratio"] or {}
        table.add_row(
            row["size"],
            row["variant"],
            amount(memory["arguments"], _GB),
            amount(memory["temporaries"], _GB),
            amount(memory["peak"], _GB),
            {True: "yes", False: "no", None: "?"}[row["fits"]],
            amount(row["flops"], 1e12),
            f"{row['flops'] / row['analytic_flops']:.2f}",
            amount(row["hbm_bytes"], _GB),
            _times(ratio.get("hbm_bytes")),
            amount(row["seconds"], 1e-3),
            _times(ratio.get("seconds")),
            "" if row["mfu"] is None else f"{row['mfu']:.0%}",
            duration(row["compile_seconds"]),
        )
    return table


def _collectives(rows: list[dict]):
    kinds = [kind for kind in KINDS if any(kind in row["collectives"] for row in rows)]
    columns = {"size": "left", "variant": "left"} | dict.fromkeys([*kinds, "GB sent"], "right")
    table = make_table("", columns)
    for row in rows:
        cells = []
        for kind in kinds:
            one = row["collectives"].get(kind)
            cells.append(f"{one['count']:.0f} x: {amount(one['bytes'], _GB)}" if one else "")
        total = amount(row["collective_bytes"], _GB)
        table.add_row(row["size"], row["variant"], *cells, total)
    return table


def verdicts(row: dict) -> list[str]:
    """Sentences about a cell that failed or does not fit; none for another."""
    if row.get("error"):
        return [f"{row['cell']}: cannot be compiled: {row['error']}"]
    if row["fits"] is not False:
        return []
    memory = row["memory"]
    need = f"{memory['peak'] / _GB:.2f} GB" if memory["peak"] else "more memory"
    has = f" of the {memory['hbm'] / _GB:.2f} GB there are" if memory["hbm"] else ""
    lines = [f"{row['cell']} does not fit: it needs {need}{has}. Its largest tensors:"]
    for tensor in row["largest"]:
        total = tensor["bytes"] * tensor["count"] / _GB
        where = f"  {tensor['where']}" if tensor["where"] else ""
        lines.append(f"  {total:.2f} GB  {tensor['count']} x {tensor['shape']}{where}")
    lines.append(
        "  Try --set model.remat=layer (or block), a larger --set train.accumulate, more devices, "
        "or --tune, which searches the first two."
    )
    return lines


def _notes(document: dict) -> list[str]:
    notes = [
        "args: weights, moments and batch, temps: activations, both in GB; /calc: TFLOP to the "
        "analytic count, head included, without what remat computes again; GB: moved in main "
        "memory; /base: to the baseline; built: time to compile. N x: collectives in a step, and "
        "the GB that they send."
    ]
    if any(row.get("seconds") for row in document["cells"]):
        notes.append(
            "ms: XLA's estimate: the longer of computing and moving for each instruction, none "
            "overlapped, links between chips not counted. MFU follows from it: it is a bound."
        )
    loops = sum(row.get("uncounted_loops", 0) for row in document["cells"])
    if loops:
        notes.append(f"{loops} loops whose length is not known are counted as one run.")
    return notes


def amount(value: float | None, unit: float) -> str:
    """value / unit in three digits, fewer below 0.1."""
    if value is None:
        return "?"
    value /= unit
    for limit, digits in ((100, 0), (10, 1), (0.1, 2)):
        if value >= limit:
            return f"{value:.{digits}f}"
    return f"{value:.1g}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"
