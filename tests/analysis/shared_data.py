"""Public data that lie beside the repository; a test that needs them says so where they do not."""

from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data"


def read(name: str) -> pd.DataFrame:
    """A table of the shared folder, such as "porian_2024/optimal_pairs.csv"."""
    if not (FOLDER / name).is_file():
        pytest.skip(f"shared/data/{name} is not beside the repository")
    return pd.read_csv(FOLDER / name)


def epoch() -> tuple:
    """N, D and loss of the 240 points of Besiroglu et al. 2024, arXiv 2404.10102."""
    df = read("epoch_chinchilla/svg_extracted_data.csv")
    df = df[df["loss"] < df["loss"].nlargest(5).min()]
    N, C = df["Model Size"].to_numpy(), df["Training FLOP"].to_numpy()
    return N, C / (6 * N), df["loss"].to_numpy()
