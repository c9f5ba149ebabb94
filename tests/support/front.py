"""A proxy of an object store: real HTTP requests are counted, forwarded, and failed by plan."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from retention.stores.checks.capability_probe import TRIAL
from tests.support.faults import Call

SLOW_S = 0.5
_ENTRY = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_WRITTEN_AT = re.compile(rb"<LastModified>(.*?)<")
_KEY = re.compile(rb"<Key>(.*?)<")
_NOT_PASSED_ON = ("connection", "transfer-encoding", "content-length", "date", "server")


class Kind(StrEnum):
    """The kind of failure of a request."""

    REFUSED = "503 before"
    """Fails once; a retry succeeds."""
    DOWN = "503 before, and ever after"
    BROKEN = "500 after success"
    """The request is executed; a retry meets its effect."""
    LOST = "connection lost after success"
    DEAD = "connection lost after success, and 503 ever after"
    CUT = "truncated body"
    STALE = "stale list"
    """The newest entry is missing."""
    SLOW = "slow"


_WRITTEN = (Kind.REFUSED, Kind.DOWN, Kind.BROKEN, Kind.LOST, Kind.DEAD, Kind.SLOW)
_READ = (Kind.REFUSED, Kind.DOWN, Kind.CUT, Kind.SLOW)


def kinds_of(operation: str) -> tuple[Kind, ...]:
    """The possible failures of a request."""
    if operation == "list":
        return (*_READ, Kind.STALE)
    if operation == "head":
        return (Kind.REFUSED, Kind.DOWN, Kind.SLOW)
    return _READ if operation == "get" else _WRITTEN


@dataclass
class Front:
    """The state of the proxy: counted requests, and planned failures."""

    store: tuple[str, int]
    plan: dict[tuple[str, int], Kind] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    met: int = 0
    unconditional: bool = False
    """Forward puts without their condition, like a proxy that drops the header."""
    _counts: Counter[str] = field(default_factory=Counter)
    _down: bool = False
    _lock: Any = field(default_factory=threading.Lock)
    puts: Any = field(default_factory=threading.Lock)
    """Held by the single conditional put in progress."""

    def begin(self, plan: dict[tuple[str, int], Kind] | None = None) -> None:
        """Reset the counts, and set planned failures."""
        with self._lock:
            self.plan, self.calls, self.met = plan or {}, [], 0
            self._counts.clear()
            self._down = False

    def next(self, operation: str, place: str) -> Kind | None:
        """The planned failure of this request; None: it does not fail."""
        with self._lock:
            self._counts[operation] += 1
            call = Call(operation, self._counts[operation], place)
            self.calls.append(call)
            kind = self.plan.get((operation, call.nth))
            self.met += kind is not None
            if self._down:
                return Kind.DOWN
            self._down = kind in (Kind.DOWN, Kind.DEAD)
            return kind


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    front: Front

    def _pass(self) -> None:
        body = self._body()
        operation, place = _named(self.command, self.path, self.headers)
        kind = self.front.next(operation, place)
        if kind in (Kind.REFUSED, Kind.DOWN):
            self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if kind is Kind.SLOW:
            time.sleep(SLOW_S)
        status, headers, content = self._asked(body)
        if kind in (Kind.LOST, Kind.DEAD):
            self._hang_up()
        elif kind is Kind.BROKEN:
            self._answer(500, {}, b"<Error><Code>InternalError</Code></Error>")
        elif kind is Kind.CUT and len(content) > 1:
            self._answer(
                status, headers, content[: len(content) // 2], missing=len(content) // 2 + 1
            )
            self._hang_up()
        else:
            self._answer(status, headers, _stale(content) if kind is Kind.STALE else content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815  (the library's names)

    def handle_expect_100(self) -> bool:
        """Answer immediately, because a buffered answer delays the client by a second."""
        let = super().handle_expect_100()
        self.wfile.flush()
        return let

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _asked(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        behind = http.client.HTTPConnection(*self.front.store, timeout=60)
        left: tuple[str, ...] = ("connection", "expect", "transfer-encoding")
        if self.front.unconditional:
            left += ("if-none-match",)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in left}
        # The server checks, then writes; concurrent conditional puts would race.
        conditional = any(name.lower() == "if-none-match" for name in headers)
        with self.front.puts if conditional else nullcontext():
            behind.request(self.command, self.path, body, headers)
            answer = behind.getresponse()
            content = answer.read()
        behind.close()
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in _NOT_PASSED_ON}
        if self.command == "HEAD":
            kept["Content-Length"] = answer.getheader("Content-Length") or "0"
        return answer.status, kept, content

    def _answer(
        self, status: int, headers: dict[str, str], content: bytes, missing: int = 0
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content) + missing))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
            self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the library's name)
        """Log nothing."""


def _named(method: str, target: str, headers: Any) -> tuple[str, str]:
    """The operation of a request, and the kind of its path."""
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    parts = unquote(url.path).strip("/").split("/")[2:]
    if method == "GET" and ("list-type" in query or "prefix" in query):
        return "list", _sort("".join(query.get("prefix", [""])).strip("/").split("/")[1:])
    if method == "PUT" and headers.get("If-None-Match"):
        return "put if absent", _sort(parts)
    if method == "POST":
        return "delete many" if "delete" in query else "upload", _sort(parts)
    return method.lower(), _sort(parts)


def _sort(parts: list[str]) -> str:
    if any(part.startswith(TRIAL) for part in parts):
        return "trial"
    if "_delta_log" in parts:
        return "_delta_log"
    if parts[:1] == ["streams"]:
        return "/".join(parts[2:4] if parts[2:3] == ["_retention"] else parts[2:3])
    return parts[0] if parts else ""


def _stale(content: bytes) -> bytes:
    entries = _ENTRY.findall(content)
    if not entries:
        return content
    newest = max(entries, key=lambda entry: [found.findall(entry) for found in (_WRITTEN_AT, _KEY)])
    return content.replace(newest, b"").replace(
        b"<KeyCount>%d<" % len(entries), b"<KeyCount>%d<" % (len(entries) - 1)
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnected."""


@contextmanager
def front_of(endpoint: str) -> Iterator[tuple[Front, str]]:
    """Run a proxy of an object store; yields the proxy, and its address."""
    host, _, port = endpoint.partition("://")[2].partition(":")
    front = Front((host, int(port)))
    handler = type("Handler", (_Handler,), {"front": front})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield front, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
