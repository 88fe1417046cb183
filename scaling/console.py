"""The one console: as wide as the terminal up to 100 columns, 100 where output is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

MAX_WIDTH = 100


def make_console(stderr: bool = False) -> Console:
    """A console on standard output or standard error, to which names of variants are text."""
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    console.width = min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH
    return console


def make_table(title: str, columns: dict[str, str]) -> Table:
    """A borderless table; `columns` maps each heading to its justification."""
    padding = (0, 2 if len(columns) < 8 else 1, 0, 0)  # a hundred columns have to do
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=padding)
    for heading, justify in columns.items():
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading == "cell")
    return table


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields show(description, done, total): a bar on a terminal, one line a task elsewhere."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    tasks: dict = {}

    def show(description: str, done: int, total: int | None) -> None:
        if description not in tasks:
            tasks[description] = bars.add_task(description, total=total)
            if not console.is_terminal:
                console.print(description, markup=False)
        bars.update(tasks[description], completed=done, total=total)

    with bars:
        yield show
