"""The page of a study, served to this machine alone and renewed while the study runs."""

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from scaling.errors import UserError

HOST = "127.0.0.1"
NAMES = {HOST, "localhost"}  # by which a browser may call it: other sites' names may lead here too


class Pages(Protocol):
    """What can be served: see `scaling.page.Pages`."""

    def version(self) -> str: ...

    def data(self, live: bool = False) -> dict: ...


class Server(ThreadingHTTPServer):
    """Answers `/`, `/data.json` and `/version`, and nothing else; one answer at a time is made."""

    daemon_threads = True

    def __init__(self, pages: Pages, port: int):
        self.pages, self.making = pages, threading.Lock()
        self._made: dict = {}
        super().__init__((HOST, port), Handler)

    def data(self) -> dict:
        """The page's data, made anew where the directory has changed."""
        with self.making:
            if self._made.get("live") != self.pages.version():
                self._made = self.pages.data(live=True)
            return self._made


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        from analysis.page import html

        if self.headers.get("Host", "").rpartition(":")[0] not in NAMES:
            return self._send(403, "text/plain", "Call this server 127.0.0.1 or localhost.")
        path = self.path.partition("?")[0]
        if path in ("/", "/report.html"):
            return self._send(200, "text/html", html(self.server.data()))
        if path == "/data.json":
            return self._send(200, "application/json", json.dumps(self.server.data()))
        if path == "/version":
            with self.server.making:
                version = self.server.pages.version()
            return self._send(200, "application/json", json.dumps({"version": version}))
        return self._send(404, "text/plain", "There is / only.")

    def log_message(self, *_) -> None:
        """Says nothing: a page asks every few seconds."""

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reader left
            self.wfile.write(body)


def start(pages: Pages, port: int) -> Server:
    """A server that answers, in threads of its own; end it with `stop`.

    Raises:
      UserError: the port is taken or is none.
    """
    try:
        server = Server(pages, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--port {port}: {reason}; give another one, or 0 for any that is free."
        ) from error
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
    ).start()
    return server


def stop(server: Server) -> None:
    """Ends it; requests under way are not waited for."""
    server.shutdown()
    server.server_close()


def serve_page(pages: Pages, port: int, say: Callable[[str], None]) -> None:
    """Serves until Ctrl-C; `say` is told the address."""
    server = start(pages, port)
    try:
        say(f"http://{HOST}:{server.server_address[1]}/")
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        stop(server)
