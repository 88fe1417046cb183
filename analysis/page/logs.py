"""metrics.jsonl as it is, also of runs that go on, stopped, or were killed while writing a line."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.curves import read_points


@dataclass(frozen=True)
class Log:
    """Training loss by logged step, [n_points], and what is wrong with the file, if anything is."""

    steps: np.ndarray
    loss: np.ndarray
    damage: str | None = None


def read_log(path: Path) -> Log:
    """The finite losses of a metrics file by step, up to where it is damaged; of a step, the last.

    A file that is not there is an empty log: the cell has not begun.
    """
    try:
        points, damage = read_points(path)
    except FileNotFoundError:
        return Log(np.array([], int), np.array([]))
    except OSError as error:
        return Log(np.array([], int), np.array([]), f"'{path}' cannot be read: {error.strerror}.")
    steps, loss = points["step"].to_numpy(np.int64), points["loss"].to_numpy(float)
    steps, loss = steps[np.isfinite(loss)], loss[np.isfinite(loss)]
    last = len(steps) - 1 - np.unique(steps[::-1], return_index=True)[1]
    return Log(steps[last], loss[last], damage)
