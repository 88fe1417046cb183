"""One cell's training step: built from shapes, compiled for a topology, and read."""

import gc
import tempfile
import time
from pathlib import Path

from models.attention import kernel
from scaling.cells import Cell
from scaling.compile import hlo
from scaling.compile.cost import Cost, program_cost
from scaling.compile.memory import largest_tensors, needed_bytes
from scaling.compile.rates import RATES
from scaling.device import chip_of, program_memory
from scaling.errors import UserError
from scaling.flops import forward_flops_per_token, train_flops
from scaling.sharding import resolve_mesh
from scaling.step import Program

# The search for the fastest code of each instruction takes three quarters of the time to compile,
# and changes neither what is computed nor what the estimates are made of.
_QUICK = {"exec_time_optimization_effort": -1.0}
_DUMPED = "spmd-partitioning"  # and with it, unasked, the memory assignment


def compile_cell(cell: Cell, devices: list) -> dict:
    """Everything that `scaling compile` says of one cell; see `scaling.compile.report`.

    A program that the compiler refuses is a row too: `fits` is False for lack of memory, else
    `error` says why.
    """
    row = {"cell": cell.key, "size": cell.size, "variant": cell.variant, "seed": cell.seed,
           "accumulate": cell.train.accumulate, "remat": cell.model.remat}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="scaling-compile-") as folder:
        start = time.perf_counter()
        try:
            compiled = _compile(cell, devices, folder)
        except UserError:
            raise
        except Exception as error:  # one cell's, such as of a residual of the user's own
            compiled, message = None, " ".join(str(error).split())
        row["compile_seconds"] = time.perf_counter() - start
        if compiled is None and not message.startswith("RESOURCE_EXHAUSTED"):
            return row | {"fits": None, "error": message[:500]}
        row |= _read(cell, devices, compiled, Path(folder))
        if compiled is None:
            row["refusal"] = message.split(" ===")[0]
    del compiled
    gc.collect()
    return row


def _compile(cell: Cell, devices: list, folder: str):
    program = Program(cell, devices)
    options = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": _DUMPED} | _QUICK
    lowered = program.trace_train(*program.shapes()).lower()
    try:
        return lowered.compile(compiler_options=options)
    except Exception as error:
        if "No such compile option" not in str(error):
            raise
    # A newer compiler than the one that the option is of.
    options = {name: value for name, value in options.items() if name not in _QUICK}
    return lowered.compile(compiler_options=options)


def _read(cell: Cell, devices: list, compiled, folder: Path) -> dict:
    kind, n = devices[0].device_kind, len(devices)
    text = compiled.as_text() if compiled else _newest(folder, "*.after_optimizations.txt")
    module = hlo.parse(text)
    cost = program_cost(module, n, RATES.get(kind))
    known = chip_of(devices[0])
    hbm = known.hbm_bytes if known else None
    memory = _memory(compiled, folder)
    fits = None if hbm is None else compiled is not None and memory["peak"] <= hbm
    tensors = largest_tensors(folder, module) if fits is False else []
    del module, text
    collective = _as_partitioned(devices, folder) or cost
    row = {
        "fits": fits,
        "memory": memory | {"hbm": hbm},
        "largest": [{"shape": t.shape, "bytes": t.bytes, "count": t.count, "where": t.where}
                    for t in tensors],
        "flops": cost.flops,
        "analytic_flops": _analytic_flops(cell, devices),
        "bytes": cost.bytes,
        "hbm_bytes": cost.hbm_bytes,
        "collectives": {name: {"bytes": collective.collective_bytes[name],
                               "count": collective.collective_count[name]}
                        for name in sorted(collective.collective_bytes)},
        "collective_bytes": sum(collective.collective_bytes.values()),
        "uncounted_loops": cost.uncounted_loops,
        "seconds": cost.seconds or None,
        "schedule_seconds": None,
        "mfu": None,
    }  # fmt: skip
    if cost.seconds:
        rates = RATES[kind]
        row["schedule_seconds"] = cost.cycles / rates.clock + cost.unpriced
    if cost.seconds and known:
        useful = train_flops(cell.model, cell.tokens_per_step, "with_head") / n
        row["mfu"] = useful / cost.seconds / known.flops
    return row


def _memory(compiled, folder: Path) -> dict:
    """Bytes; of a program that does not fit, what its buffers would take together."""
    if compiled is None:
        sizes = dict.fromkeys(("arguments", "outputs", "aliased", "temporaries", "code"))
        return sizes | {"peak": needed_bytes(folder)}
    return program_memory(compiled)


def _as_partitioned(devices: list, folder: Path) -> Cost | None:
    """On CPU, the program as it was cut up, before bf16 collectives became fp32 ones."""
    text = _newest(folder, "*.after_spmd-partitioning.*.txt")
    if devices[0].platform != "cpu" or not text:
        return None
    return program_cost(hlo.parse(text), len(devices))


def _newest(folder: Path, pattern: str) -> str:
    files = sorted(folder.glob(pattern))
    return files[-1].read_text(encoding="utf-8") if files else ""


def _analytic_flops(cell: Cell, devices: list) -> float:
    """Of one device, head included; with masked scores where the attention computes them."""
    cfg = cell.model.on_platform(devices[0].platform)
    flops = train_flops(cfg, cell.tokens_per_step, "with_head")
    if kernel(cfg, resolve_mesh(cell, len(devices)).sequence > 1) == "xla":
        flops += 3.0 * forward_flops_per_token(cfg)["attention_masked"] * cell.tokens_per_step
    return flops / len(devices)
