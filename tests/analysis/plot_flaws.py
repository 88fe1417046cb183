"""What a person would see at once in a bad figure, measured on the canvas."""

import warnings
from itertools import combinations

from matplotlib.figure import Figure


def flaws(figure: Figure) -> list[str]:
    """Texts that overlap or are cut off, and axes without a name and a unit."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.canvas.draw()
    page, found = figure.bbox, []
    boxes = [(text, text.get_window_extent()) for text in _texts(figure)]
    for text, box in boxes:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        if not inside:
            found.append(f"cut off: {text.get_text()!r}")
    for (a, box), (b, other) in combinations(boxes, 2):
        if box.padded(-1).overlaps(other.padded(-1)):
            found.append(f"overlap: {a.get_text()!r} and {b.get_text()!r}")
    return found + _nameless(figure)


def _texts(figure: Figure) -> list:
    texts = [figure._suptitle, figure._supxlabel, figure._supylabel]
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    for legend in legends:
        texts += [legend.get_title(), *legend.get_texts()]
    for axes in (a for a in figure.axes if a.get_visible()):
        texts += [axes.title, *axes.texts]
        if axes.axison:
            for axis in (axes.xaxis, axes.yaxis):
                texts += [axis.label, axis.offsetText, *_tick_labels(axis)]
    return [t for t in texts if t is not None and t.get_text().strip() and t.get_visible()]


def _tick_labels(axis) -> list:
    low, high = sorted(axis.get_view_interval())
    return [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]


def _nameless(figure: Figure) -> list[str]:
    """An axis has a label of its own, or that of another in its column or row, or the figure's."""
    found = []
    shared = {"x": figure._supxlabel, "y": figure._supylabel}
    drawn = [a for a in figure.axes if a.get_visible() and a.axison]
    for which in "xy":
        labels = [getattr(a, f"{which}axis").label.get_text() for a in drawn]
        labels += [shared[which].get_text()] if shared[which] else []
        labels = [label for label in labels if label]
        if not labels:
            found.append(f"no name on any {which} axis")
        units = ("(", "variant")  # a category has no unit
        found += [f"no unit: {label!r}" for label in labels if not any(u in label for u in units)]
    return found
