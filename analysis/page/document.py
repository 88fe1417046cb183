"""One HTML file from the data and the assets: no request leaves it, no name in it is markup."""

import base64
import hashlib
import json
from importlib import resources

SCRIPTS = (
    "dom", "format", "scale", "chart", "heat", "tables", "legend", "compute", "training",
    "inside", "live", "main",
)  # fmt: skip


def html(data: dict) -> str:
    """The page. Only the two hashed blocks may act; the data are text to the browser."""
    style = _asset("report.css")
    script = "(() => {\n'use strict';\n" + "\n".join(map(_script, SCRIPTS)) + "\n})();"
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "data": escaped(data)}
    page = _asset("report.html")
    for name, text in parts.items():
        before, _, after = page.partition(f"@{name}@")
        page = before + text + after
    return page


def escaped(data: dict) -> str:
    """JSON that no HTML parser sees a tag in, of ASCII alone."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _asset(name: str) -> str:
    return (resources.files("analysis.page") / "assets" / name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    return _asset(f"{name}.js")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
