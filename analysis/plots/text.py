"""Names, headings and legends that fit: measured, shortened, wrapped."""

import warnings
from collections.abc import Iterable
from functools import lru_cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from analysis.style import GREY, Page

_LINE = 1.35  # lines of text, in heights of its letters


def plain(name: object) -> str:
    """A name as Matplotlib shows it as it is: between dollars it would set mathematics.

    Line breaks and other control characters become spaces.
    """
    printable = "".join(c if c.isprintable() else " " for c in str(name))
    return printable.replace("$", r"\$")


@lru_cache(maxsize=4096)
def inches(text: str, points: float) -> float:
    """The width of one line of text."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        literal = text.replace(r"\$", "$")
        font = FontProperties(size=points)
        return text_to_path.get_text_width_height_descent(literal, font, False)[0] / 72


def shown(names: Iterable[str], width: float, points: float) -> dict[str, str]:
    """{name: the name as shown in at most `width` inches}, no two the same.

    A long name loses its middle, since beginnings and ends tell variants apart.
    """
    found: dict[str, str] = {}
    for name in names:
        text, n = _shortened(str(name), width, points), 2
        while text in found.values():
            text = _shortened(str(name), width, points, f" ({n})")
            n += 1
        found[name] = text
    return {name: plain(text) for name, text in found.items()}


def short(name: str, page: Page) -> str:
    """One name as `shown` within a heading."""
    return shown([name], 0.4 * page.width, page.small)[name]


def _shortened(name: str, width: float, points: float, suffix: str = "") -> str:
    kept = len(name)
    while True:
        head = -(-3 * kept // 5)
        text = name if kept == len(name) else f"{name[:head]}…{name[len(name) - kept + head :]}"
        if kept <= 4 or inches(text + suffix, points) <= width:
            return text + suffix
        # No need to try each length of a name of thousands of letters.
        kept = max(4, min(kept - 1, int(kept * width / inches(text + suffix, points)) + 1))


def wrapped(text: str, width: float, points: float) -> str:
    """Broken at spaces into lines of at most `width` inches, as far as words allow."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and inches(longer, points) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def legend(owner, handles: dict, **options) -> None:
    """Legend of an axis or figure, {label: artist}, with labels that start with an underscore too.

    Some versions of Matplotlib leave these out, but only when the legend is made.
    """
    made = owner.legend(list(handles.values()), [" "] * len(handles), **options)
    made.get_title().set(color=GREY, multialignment="center")
    for text, label in zip(made.get_texts(), handles, strict=True):
        text.set_text(label)


def heading(
    figure: Figure, page: Page, text: str = "", handles: dict | None = None, ylabel: str = ""
) -> None:
    """What is drawn, and a legend {label: artist}, above all panels; the figure grows by them.

    The legend has as many columns as fit. `ylabel` names the y axes of all panels, at their middle.
    """
    points = page.small
    lines = wrapped(text, page.width - 0.3, points) if text else ""
    height = (1 + lines.count("\n")) * _LINE * points / 72 if text else 0
    if handles:
        of_handle = 3.6 * points / 72  # the line, its gap, and the gap to the next column
        widest = max(inches(label, points) for label in handles) + of_handle
        columns = max(1, min(len(handles), int((page.width - 0.2) / widest)))
        rows = -(-len(handles) // columns)
        columns = -(-len(handles) // rows)
        height += (rows * _LINE + 0.6) * points / 72
        options = {"ncols": columns, "fontsize": points}
        if text:
            options |= {"title": lines, "title_fontproperties": {"size": points}}
        legend(figure, handles, loc="outside upper center", **options)
    elif text:
        figure.suptitle(lines, fontsize=points, color=GREY)
    panels = figure.get_figheight()
    figure.set_figheight(panels + height)
    if ylabel:
        figure.supylabel(ylabel, y=0.5 * panels / (panels + height), fontsize=page.normal)
