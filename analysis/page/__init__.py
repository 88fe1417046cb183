"""One page that shows a study: verdict, tables, curves, what goes on inside, and what is missing.

    data = page_data("runs/demo", Study("demo", Path("runs/demo"), cells))
    Path("report.html").write_text(html(data))

`data` are plain numbers and strings; the page draws them in the browser by its own code.
"""

from analysis.page.build import page_data
from analysis.page.document import html
from analysis.page.study import CellState, Study

__all__ = ["CellState", "Study", "html", "page_data"]
