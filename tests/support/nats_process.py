"""A nats-server as an operator runs it: any configuration, killed and started again on the same port."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retention.nats.connection import Connection
from retention.nats.settings import ConnectionSettings, settings_of

Json = dict[str, Any]
STARTED_WITHIN = 20.0
WITHIN = 20.0


class NatsProcess:
    """A server with its store in a directory."""

    def __init__(self, directory: Path, settings: str, jetstream: str = "") -> None:
        self.port = _free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._config = directory / "nats.conf"
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nserver_name: live\n'
            f'jetstream {{ store_dir: "{directory}/store"\n{jetstream} }}\n{settings}'
        )
        self.log = directory / "log"
        self.start()

    def start(self) -> None:
        self.log.unlink(missing_ok=True)
        binary = Path(sys.executable).parent / "nats-server"
        self._process = subprocess.Popen([binary, "-c", self._config, "-l", self.log])
        deadline = time.monotonic() + STARTED_WITHIN
        while time.monotonic() < deadline and self._process.poll() is None:
            if self.log.exists() and "Server is ready" in self.log.read_text():
                return
            time.sleep(0.01)
        raise AssertionError(self.log.read_text())

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(how)
        self._process.wait(STARTED_WITHIN)

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.stop(how)
        self.start()


@contextmanager
def nats_process(directory: Path, settings: str = "", jetstream: str = "") -> Iterator[NatsProcess]:
    """A server that is stopped at the end; `jetstream` goes into that block of its configuration."""
    process = NatsProcess(directory, settings, jetstream)
    try:
        yield process
    finally:
        process.stop()


class Admin:
    """Requests to a server, as a publisher and administrator makes them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def api(self, request: str, body: Json | None = None) -> Json:
        payload = json.dumps(body).encode() if body else b""
        answer = self.connection.request(f"$JS.API.{request}", payload, WITHIN)
        parsed: Json = json.loads(answer.payload)
        assert "error" not in parsed, parsed
        return parsed

    def create(self, name: str, **config: Any) -> Json:
        return self.api(
            f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config}
        )

    def publish(
        self, subject: str, payloads: Sequence[bytes], headers: bytes | None = None
    ) -> None:
        """Publish with a header block, and wait until the stream has all; its name is the subject's first token."""
        stream = subject.split(".", maxsplit=1)[0]
        last = self.last_seq(stream) + len(payloads)
        self.send(b"".join(_frame(subject, payload, headers) for payload in payloads))
        deadline = time.monotonic() + WITHIN
        while self.last_seq(stream) != last and time.monotonic() < deadline:
            time.sleep(0.005)
        assert self.last_seq(stream) == last

    def last_seq(self, stream: str) -> int:
        seq: int = self.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]
        return seq

    def send(self, frames: bytes) -> None:
        """Send frames as they are, and wait for the server's pong."""

        async def sending() -> None:
            client = self.connection.client
            await client._send_command(frames)
            await client._flush_pending(force_flush=True)
            await client.flush(int(WITHIN))

        self.connection.run(sending())


@contextmanager
def admin(settings: ConnectionSettings | str) -> Iterator[Admin]:
    """An administrator's connection."""
    given = settings_of(settings, None, {}) if isinstance(settings, str) else settings
    with Connection.open(given) as connection:
        yield Admin(connection)


def _frame(subject: str, payload: bytes, headers: bytes | None) -> bytes:
    name = subject.encode()
    if headers is None:
        return b"PUB %s %d\r\n%s\r\n" % (name, len(payload), payload)
    sizes = len(headers), len(headers) + len(payload)
    return b"HPUB %s %d %d\r\n%s%s\r\n" % (name, *sizes, headers, payload)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
