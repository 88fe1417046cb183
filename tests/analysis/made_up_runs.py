"""Run directories as a launch leaves them, with made-up numbers."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from scaling.cells import Cell, expand
from scaling.ledger import Ledger
from scaling.results import write_results
from scaling.study import Study

GAINS = {"prenorm": 1.0, "attnres_block": 1.2, "attnres_full": 1.3}
WIDTHS = (16, 24, 32, 48, 64)


def made_up_cells(variants: list[str], widths: tuple = WIDTHS, seeds: int = 1, n_layers: int = 4):
    """The cells of a small study, small sizes first."""
    size = {"n_layers": n_layers, "n_heads": 2, "learning_rate": 0.01}
    study = Study.model_validate(
        {
            "name": "made-up",
            "baseline": "prenorm",
            "data": {"source": "tfds:stdlib_sources", "seq_len": 128, "validation_tokens": 4096},
            "sizes": {f"d{d}": {"d_model": d, "tokens": 20_000 * d, **size} for d in widths},
            "variants": {v: {"residual": v, "options": {}} for v in variants},
            "seeds": list(range(seeds)),
            "train": {"batch_size": 8, "log_every": 2},
        }
    )
    return expand(study, 256)


def finish(ledger: Ledger, cell: Cell, noise: float = 0.002, n_points: int = 200) -> None:
    """One cell, trained."""
    loss = _final_loss(cell, noise)
    log(ledger, cell, n_points)
    record = {
        "n_params": 1000, "n_params_non_embedding": 900, "tokens": cell.tokens,
        "steps": cell.steps, "train_flops": cell.train_flops, "flops_convention": "train_flops",
        "pflops_days": cell.train_flops / 8.64e19, "val_loss": loss, "val_loss_sem": 0.01,
        "train_seconds": cell.train_flops / 1e10 * (1.1 if "full" in cell.variant else 1.0),
        "data_fingerprint": "abc", "code_version": "0.1.0+gabc", "jax_version": "0.10.2",
        "device_kind": "cpu", "n_devices": 1,
    }  # fmt: skip
    ledger.write_summary(cell, record)


def log(ledger: Ledger, cell: Cell, n_points: int = 200, share: float = 1.0) -> None:
    """The metrics of the first `share` of a run."""
    ledger.write_config(cell)
    rng = np.random.default_rng(cell.seed * 7919 + cell.model.d_model)  # one noise a size and seed
    steps = np.unique(np.linspace(2, cell.steps * share, n_points).astype(int))
    shared = rng.normal(0, 0.03, len(steps))
    own = np.random.default_rng(len(cell.variant)).normal(0, 0.004, len(steps))
    loss = _final_loss(cell, 0) + 3 * np.exp(-steps / (0.08 * cell.steps)) + shared + own
    per_step = cell.tokens_per_step
    lines = [
        {"step": s, "loss": v, "tokens": s * per_step, "seconds": s / 9}
        for s, v in zip(steps.tolist(), loss.tolist(), strict=True)
    ]
    path = ledger.directory(cell) / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def dynamics(ledger: Ledger, cell: Cell, n_steps: int = 6, ablated: bool = True) -> None:
    """dynamics.parquet and, of depth attention, ablation.parquet."""
    rng, n = np.random.default_rng(cell.seed), 2 * cell.model.n_layers
    attends = "attnres" in cell.variant
    rows, ablation = [], []
    for step in np.linspace(cell.steps / n_steps, cell.steps, n_steps).astype(int):
        for s in range(n):
            site, grown = ("attention", "mlp")[s % 2], 1 + (0.02 if attends else 0.3) * s
            for metric, value in (
                ("output_rms", grown * rng.uniform(0.9, 1.1)),
                ("input_rms", grown * rng.uniform(0.9, 1.1)),
                ("grad_norm", (1 if attends else np.exp(-0.2 * s)) * rng.uniform(0.5, 1) / step),
                ("update_ratio", 1e-3 * rng.uniform(0.5, 1)),
            ):
                rows.append((step, metric, site, s, -1, value))
        for s in range(n + 1) if attends else ():
            site = ("attention", "mlp")[s % 2] if s < n else "read"
            alpha = rng.dirichlet(np.r_[2.0, np.full(s, 0.4)]) if s else np.ones(1)
            alpha = (alpha + (np.arange(s + 1) == s)) / 2
            rows += [(step, "alpha", site, s, i, a) for i, a in enumerate(alpha)]
            rows.append((step, "alpha_entropy", site, s, -1, -(alpha * np.log(alpha + 1e-9)).sum()))
            if step == cell.steps:
                deltas = alpha * rng.normal(0.3, 0.3, s + 1)
                ablation += [("remove", site, s, i, d) for i, d in enumerate(deltas)]
                ablation += [("average", site, s, i, d / 3) for i, d in enumerate(deltas)]
    for site in ("attention", "mlp", "") if attends else ():
        ablation += [("remove", site, -1, i, 2.0 - i / n) for i in range(n + 1)]
    columns = ["step", "metric", "site", "sublayer", "source", "value"]
    directory = ledger.directory(cell)
    pd.DataFrame(rows, columns=columns).to_parquet(directory / "dynamics.parquet")
    if attends and ablated:
        columns = ["mode", "site", "sublayer", "source", "delta"]
        pd.DataFrame(ablation, columns=columns).assign(tokens=8192).to_parquet(
            directory / "ablation.parquet"
        )


def made_up_run(
    root: Path, variants: list[str] = tuple(GAINS), widths: tuple = WIDTHS, seeds: int = 1,
    inside: bool = False, n_layers: int = 4, n_points: int = 200,
) -> Ledger:  # fmt: skip
    """A study whose every cell is done; `inside` with dynamics."""
    ledger, cells = Ledger(root), made_up_cells(list(variants), widths, seeds, n_layers)
    ledger.add(cells, "prenorm")
    for cell in cells:
        finish(ledger, cell, n_points=n_points)
        if inside:
            dynamics(ledger, cell)
    write_results(ledger)
    return ledger


def _final_loss(cell: Cell, noise: float) -> float:
    rng = np.random.default_rng(cell.seed + 100 * cell.model.d_model)
    own = np.random.default_rng(cell.seed + 31 * cell.model.d_model + len(cell.variant))
    C = cell.train_flops / 1e12
    loss = 3.0 * (GAINS.get(cell.variant, 1.0) * C) ** -0.09
    return float(loss * np.exp(rng.normal(0, noise) + own.normal(0, noise)))
