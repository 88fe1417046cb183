"""What a page of a run directory holds."""

import json
import re

from analysis.page import html
from scaling.page import Pages


def data_of(run) -> dict:
    """The data, as a browser reads them from the page."""
    made = Pages(str(run)).data()
    text = re.search(r'id="data">(.*?)</script>', html(made), flags=re.DOTALL)[1]
    assert json.loads(text) == json.loads(json.dumps(made))
    return made


def table(data: dict, section: str, name: str) -> dict[str, dict[str, str]]:
    """{first cell: {column: cell}} of a table of the page."""
    (found,) = [t for t in data["tables"][section] if t["id"] == name]
    return {row[0]: dict(zip(found["columns"], row, strict=True)) for row in found["rows"]}
