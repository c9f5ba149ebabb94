"""A read-only object store: reads work, writes are refused in one sentence."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import Result

from retention.storage import files
from tests.support.buckets import ObjectPath
from tests.support.command_line import invoke
from tests.support.sandboxes import NOW, lines

DENIED = b"<Error><Code>AccessDenied</Code><Message>m</Message></Error>"
CONFIG = {"streams": [{"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 4}]}
LOOKS: tuple[tuple[object, ...], ...] = (
    ("plan",),
    ("state",),
    ("messages", "ORDERS"),
    ("explain", "ORDERS", 3),
    ("history",),
)
WRITES: tuple[tuple[object, ...], ...] = (("publish", "ORDERS", "-"), ("apply", "--yes"))


@pytest.fixture
def read_only(server: dict[str, str]) -> Iterator[str]:
    """The address of the object store behind a proxy that passes only reads."""

    class Door(BaseHTTPRequestHandler):
        def ask(self) -> None:
            headers = {name: value for name, value in self.headers.items() if name != "Host"}
            url = f"{server['AWS_ENDPOINT_URL']}{self.path}"
            asked = urllib.request.Request(url, headers=headers, method=self.command)  # noqa: S310
            try:
                with urllib.request.urlopen(asked) as answer:  # noqa: S310
                    self.say(answer.status, dict(answer.headers), answer.read())
            except urllib.error.HTTPError as error:
                self.say(error.code, dict(error.headers), error.read())
                error.close()

        def deny(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.say(403, {"Content-Length": str(len(DENIED))}, DENIED)

        def say(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name != "Connection":
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = ask  # noqa: N815
        do_PUT = do_POST = do_DELETE = deny  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    door = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=door.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{door.server_port}"
    door.shutdown()
    thread.join()
    door.server_close()


def run(place: str, *words: object) -> Result:
    arguments = ["--warehouse", place, "--engine", "local", *map(str, words)]
    return invoke(arguments, stdin="\n".join(lines(12, first_ns=NOW - 10**15)))


@pytest.mark.thorough
@pytest.mark.parametrize("lost", [False, True], ids=["", "without the statistics"])
def test_looking_works_and_writing_is_refused(
    bucket: str, read_only: str, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    files.replace(f"{bucket}/retention.yaml", json.dumps(CONFIG).encode())
    assert run(bucket, "publish", "ORDERS", "-").exit_code == 0
    if lost:
        cached = ObjectPath(f"{bucket}/streams/ORDERS/_retention/stats").rglob("*")
        files.delete(str(path) for path in cached)
    before = files.walk(bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL", read_only)
    for words in LOOKS:
        done = run(bucket, *words)
        assert done.exit_code == 0, (words, done.output)
    for words in WRITES:
        done = run(bucket, *words)
        said = [line for line in done.stderr.splitlines() if ": failed (" not in line]
        assert (done.exit_code, len(said)) == (2, 1), (words, done.output)
        assert "the credentials" in said[0]
    doctor = run(bucket, "doctor")
    assert (doctor.exit_code, "permissions" in doctor.stdout) == (4, True), doctor.output
    assert files.walk(bucket) == before
