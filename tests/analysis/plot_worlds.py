"""Run directories that nobody trained, for plots: results, grid, logs, dynamics and ablations."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.dynamics import ABLATION, DYNAMICS

FLOP = 8.64e19


def plot_world(
    folder: Path,
    variants: dict[str, dict],
    *,
    sizes: int = 4,
    seeds: int = 2,
    n_layers: int = 4,
    n_lines: int = 300,
    inside: bool = True,
    scale: float = 1e-9,
    unfinished: bool = False,
) -> Path:
    """Writes a run directory.

    Args:
      variants: name -> {m: multiplier, kind: "stream", "full" or "block", n_blocks}.
      inside: write dynamics, and the ablations of Full at the largest size.
      scale: PFLOP/s-days of the smallest size.
      unfinished: every run is at half its steps.
    """
    rng, rows, cells = np.random.default_rng(0), [], []
    for j, size in enumerate(f"d{16 * (j + 1)}" for j in range(sizes)):
        for seed in range(seeds):
            common = rng.normal(0, 0.004)
            for i, (variant, about) in enumerate(variants.items()):
                C = scale * 2.6**j * (1 + 0.02 * i)
                e = common + rng.normal(0, 0.0015)
                loss = 2.2 * (about.get("m", 1) * C / scale) ** -0.06 * np.exp(e)
                cell = f"{size}-c{i}-s{seed}"
                seconds = 30 * 2**j * (1 + 0.05 * i) * np.exp(rng.normal(0, 0.02))
                rows.append(
                    {
                        "cell": cell, "size": size, "variant": variant, "seed": seed,
                        "status": "running" if unfinished else "done",
                        "n_params_non_embedding": 1000 * 4**j, "steps": 10 * n_lines,
                        "learning_rate": 0.01, "train_flops": C * FLOP,
                        "flops_convention": "train_flops", "val_loss": loss,
                        "train_seconds": seconds, "tokens_per_second": 1e6 * 2**j / seconds,
                        "peak_memory_bytes": 1e9 * 2**j * (1 + 0.1 * i), "device_kind": "cpu",
                    }
                )  # fmt: skip
                cells.append(_cell(size, variant, seed, about, n_layers))
                (folder / cell).mkdir(parents=True)
                n = n_lines // 2 if unfinished else n_lines
                _log(folder / cell / "metrics.jsonl", loss, n, n_lines, common, rng)
                if inside:
                    table = dynamics_table(about, n_layers, 10 * n, rng)
                    pq.write_table(table, folder / cell / "dynamics.parquet")
                    if about.get("kind") == "full" and j == sizes - 1:
                        pq.write_table(ablation_table(table), folder / cell / "ablation.parquet")
    table = pd.DataFrame(rows)
    if unfinished:
        table.loc[:, ["train_flops", "val_loss", "train_seconds"]] = np.nan
    table.to_csv(folder / "results.csv", index=False)
    grid = {"baseline": next(iter(variants)), "cells": cells}
    (folder / "grid.json").write_text(json.dumps(grid))
    return folder


def _cell(size: str, variant: str, seed: int, about: dict, n_layers: int) -> dict:
    block = about.get("kind") == "block"
    name = "attnres_block" if block else "prenorm"
    options = {"n_blocks": about.get("n_blocks", 4), "heads": 1} if block else {}
    model = {"n_layers": n_layers, "residual": {"name": name, "options": options}}
    return {"size": size, "variant": variant, "seed": seed, "model": model}


def _log(path: Path, loss: float, n: int, of: int, common: float, rng) -> None:
    """What variants of a size and seed share is the noise of their batches."""
    s = np.arange(1, n + 1)
    shared = np.random.default_rng(int(1e9 * abs(common))).normal(0, 0.03, of)[:n]
    noise = shared + rng.normal(0, 0.004, n)
    losses = loss + 2.5 / (1 + 30 * s / of) * (1 - 0.3 * s / of) + noise
    rows = zip((10 * s).tolist(), (5120 * s).tolist(), losses.tolist(), strict=True)
    lines = [json.dumps({"step": a, "tokens": b, "loss": c, "seconds": 1.0}) for a, b, c in rows]
    path.write_text("\n".join(lines) + '\n{"step": 3')


def dynamics_table(about: dict, n_layers: int, step: int, rng) -> pa.Table:
    """As `analysis.dynamics` describes it, of two steps."""
    rows, n = [], 2 * n_layers
    kind, n_blocks = about.get("kind", "stream"), about.get("n_blocks", 4)
    for at in (step // 2, step):
        for s in range(n):
            site = ("attention", "mlp")[s % 2]
            growth = np.exp(0.25 * s) if kind == "stream" else 1 + 0.3 * np.sin(s)
            rows.append((at, "output_rms", site, s, -1, 0.8 * growth * np.exp(rng.normal(0, 0.1))))
            read = (1.5 * s if kind == "stream" else 1) + rng.uniform(0.1, 0.2)
            rows.append((at, "input_rms", site, s, -1, read))
            slope = 3 * np.exp(-0.3 * s) if kind == "stream" else 0.6
            rows.append((at, "grad_norm", site, s, -1, slope * 1e-2 * np.exp(rng.normal(0, 0.1))))
        rows += [(at, "grad_norm", "block", s, -1, 0.02 * np.exp(-0.1 * s)) for s in range(0, n, 4)]
        for s in range(n + 1) if kind != "stream" else ():
            site = "read" if s == n else ("attention", "mlp")[s % 2]
            sources = s + 1 if kind == "full" else 1 + -(-s * n_blocks // n)
            scores = np.linspace(0, 2.5 if s % 2 else 1.5, sources) + rng.normal(0, 0.3, sources)
            scores[0] += 1.0
            alpha = np.exp(scores) / np.exp(scores).sum()
            rows += [(at, "alpha", site, s, i, a) for i, a in enumerate(alpha)]
    columns = zip(zip(*rows, strict=True), DYNAMICS.values(), strict=True)
    return pa.table([pa.array(values, kind) for values, kind in columns], names=list(DYNAMICS))


def ablation_table(dynamics: pa.Table) -> pa.Table:
    """Deltas that go with the weights, except for the embedding's, which is worth more.

    Of single reads of two sources or more, and of all MLPs together.
    """
    df = dynamics.to_pandas()
    df = df[(df["metric"] == "alpha") & (df["step"] == df["step"].max())]
    delta = 0.2 * df["value"] ** 2 * np.where(df["source"] == 0, 3, 1) - 0.005
    df = df.assign(mode="remove", delta=delta, tokens=8192)[list(ABLATION)]
    together = df[df["site"] == "mlp"].groupby("source", as_index=False)["delta"].sum()
    together = together.assign(mode="remove", site="mlp", sublayer=-1, tokens=8192)
    df = pd.concat([df[df["sublayer"] > 0], together[list(ABLATION)]])
    return pa.Table.from_pandas(df, pa.schema(ABLATION), preserve_index=False)
