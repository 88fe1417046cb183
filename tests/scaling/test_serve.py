"""The server of a report: for this machine alone, three addresses, and an end."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from scaling.errors import UserError
from scaling.serve import HOST, start, stop


class Counted:
    """Pages whose version the test sets."""

    def __init__(self):
        self.number, self.made = 1, 0

    def version(self) -> str:
        return str(self.number)

    def data(self, live: bool = False) -> dict:
        self.made += 1
        return {"live": self.version(), "title": "<b>"}


@pytest.fixture
def pages():
    return Counted()


@pytest.fixture
def get(pages):
    """get(path, host) -> (status, body)."""
    server = start(pages, 0)
    port = server.server_address[1]

    def answer(path: str, host: str = f"localhost:{port}") -> tuple[int, str]:
        connection = http.client.HTTPConnection(HOST, port, timeout=20)
        connection.request("GET", path, headers={"Host": host})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body

    yield answer
    stop(server)


def test_the_page_is_made_once_a_version(get, pages):
    status, page = get("/")
    assert status == 200 and "\\u003cb\\u003e" in page
    assert json.loads(get("/data.json")[1])["live"] == "1" and pages.made == 1
    pages.number = 2
    assert json.loads(get("/version")[1]) == {"version": "2"} and pages.made == 1
    assert json.loads(get("/data.json")[1])["live"] == "2" and pages.made == 2


def test_many_readers_make_it_once(get, pages):
    threads = [threading.Thread(target=get, args=["/data.json"]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pages.made == 1


@pytest.mark.parametrize(
    "path", ["/../etc/passwd", "/grid.json", "/x/report.html", "/%2e%2e/", "/versions"]
)
def test_nothing_else_is_served(get, path):
    assert get(path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil:1"])
def test_another_name_for_this_machine_is_refused(get, host):
    assert get("/", host)[0] == 403


def test_a_port_that_is_taken_is_named(pages):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(UserError, match=r"--port .* in use"):
            start(pages, taken.getsockname()[1])
    with pytest.raises(UserError, match="--port 99999"):
        start(pages, 99_999)


def test_ctrl_c_ends_it(tmp_path):
    (tmp_path / "results.csv").write_text("variant,size,loss,train_flops\nprenorm,S,2.0,1e18\n")
    start = (  # Ctrl-C is ignored by what a shell starts in the background, its children too
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from scaling.cli import main; main()"
    )
    line = [sys.executable, "-c", start, "report", str(tmp_path), "--serve", "--port", "0"]
    server = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        written, served = server.stdout.readline(), server.stdout.readline()
        assert written.strip().endswith("report.html")
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", served)[1])
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        connection.request("GET", "/version")
        assert "version" in json.loads(connection.getresponse().read())
    finally:
        server.send_signal(signal.SIGINT)
    try:
        _, errors = server.communicate(timeout=30)
    finally:
        server.kill()
    assert server.returncode == 0 and "Traceback" not in errors
