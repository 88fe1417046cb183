"""Experiment trackers, which are told what the local files say: TensorBoard, W&B, MLflow.

The files stay the source of truth: a tracker gets the lines of metrics.jsonl and the summary, and
what it misses does not hold up training.
"""

import os
from pathlib import Path
from typing import Protocol

from scaling.cells import Cell
from scaling.errors import UserError

NAMES = ("tensorboard", "wandb", "mlflow")
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow-skinny"}


class Tracker(Protocol):
    """One run's page in a tracker."""

    last_step: int  # that it knows already, of a run that was interrupted

    def log(self, step: int, values: dict[str, float]) -> None:
        """Takes one line of metrics."""

    def finish(self, summary: dict[str, float] | None) -> None:
        """Takes the result, or None of a run that failed."""


def open_tracker(name: str, cell: Cell, directory: Path) -> Tracker:
    """The page of a cell, new or gone on with.

    Args:
      name: one of `NAMES`.
      directory: the cell's, in the run directory.

    Raises:
      UserError: the tracker's package is not installed.
    """
    kinds = {"tensorboard": _TensorBoard, "wandb": _WandB, "mlflow": _MLflow}
    try:
        return kinds[name](cell, directory)
    except ImportError as error:
        raise UserError(
            f"trackers: {name} needs a package that is not installed: pip install "
            f'"{_PACKAGES[name]}", or take it out of the study.'
        ) from error


class _TensorBoard:
    """Event files beside the metrics: tensorboard --logdir runs."""

    last_step = 0

    def __init__(self, cell: Cell, directory: Path):
        from tensorboardX import SummaryWriter

        folder = directory / "tensorboard"
        for old in folder.glob("events.*"):  # written again from the metrics
            old.unlink()
        self._writer = SummaryWriter(str(folder))

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finish(self, summary: dict[str, float] | None) -> None:
        for name, value in (summary or {}).items():
            self._writer.add_scalar(f"result/{name}", value, 0)
        self._writer.close()


class _WandB:
    """The project is the study; WANDB_MODE=offline keeps it on disk."""

    def __init__(self, cell: Cell, directory: Path):
        import wandb

        directory.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=cell.study, id=cell.id, name=cell.key, group=cell.size, resume="allow",
            dir=str(directory), config=cell.model_dump(mode="json"), reinit="create_new",
        )  # fmt: skip
        self.last_step = max(self._run.step - 1, 0)

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def finish(self, summary: dict[str, float] | None) -> None:
        self._run.summary.update(summary or {})
        self._run.finish(exit_code=0 if summary is not None else 1)


class _MLflow:
    """The experiment is the study; MLFLOW_TRACKING_URI says where, runs/STUDY/mlruns by default."""

    def __init__(self, cell: Cell, directory: Path):
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:  # a folder needs no database, and MLflow wants to be told so
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client = MlflowClient(uri or (directory.parent / "mlruns").absolute().as_uri())
        known = self._client.get_experiment_by_name(cell.study)
        experiment = known.experiment_id if known else self._client.create_experiment(cell.study)
        found = self._client.search_runs([experiment], f"tags.cell = '{cell.id}'")
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            tags = {"cell": cell.id, "size": cell.size, "variant": cell.variant}
            run = self._client.create_run(experiment, tags=tags, run_name=cell.key)
            self._id = run.info.run_id
            for name, value in cell.train.model_dump(mode="json").items():
                self._client.log_param(self._id, name, value)
        history = self._client.get_metric_history(self._id, "loss") if found else []
        self.last_step = max((point.step for point in history), default=0)

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._id, name, value, step=step)

    def finish(self, summary: dict[str, float] | None) -> None:
        for name, value in (summary or {}).items():
            self._client.log_metric(self._id, f"result.{name}", value)
        status = "FINISHED" if summary is not None else "FAILED"
        self._client.set_terminated(self._id, status=status)
