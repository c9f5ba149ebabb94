"""A nats-server on a fixed port that is killed and started again on the same streams, and a load on one of them."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats

from tests.support.nats_oracle import Nats

_STARTED_WITHIN_S = 20.0


class KillableServer:
    """One server; `kill` ends its process at once."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._folder = folder
        self.url = f"nats://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        binary = Path(sys.executable).parent / "nats-server"
        listen = ["-a", "127.0.0.1", "-p", str(self._port), "-js"]
        places = ["-sd", str(self._folder / "store"), "-l", str(self._folder / "server.log")]
        self._process = subprocess.Popen([str(binary), *listen, *places])
        until = time.monotonic() + _STARTED_WITHIN_S
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                return
            time.sleep(0.02)
        raise TimeoutError((self._folder / "server.log").read_text())

    def kill(self) -> None:
        """End its process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def connected(self) -> Iterator[Nats]:
        """A connection for requests, during a block."""
        with asyncio.Runner() as runner:
            client = runner.run(nats.connect(self.url, allow_reconnect=False))
            yield Nats(runner, client, self._folder)
            runner.run(client.close())


@dataclass(frozen=True)
class Pace:
    """The speed of a load, and the messages that its purges leave."""

    pause_s: float = 0.01
    """The time between two acts, of at most 60 messages each, seconds."""
    left: range = range(100, 2_000)
    """The numbers of newest sequences that a purge may leave."""


PACE = Pace()


class Load:
    """A thread that publishes, deletes and purges on one stream until it is stopped, over kills of the server."""

    def __init__(self, server: KillableServer, stream: str, seed: int, pace: Pace = PACE) -> None:
        self._server, self.stream, self.pace = server, stream, pace
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.published = 0
        """Messages that the server has acknowledged."""

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(Exception), self._server.connected() as connection:
                while not self._stop.is_set():
                    self._act(connection)
            time.sleep(0.05)

    def _act(self, connection: Nats) -> None:
        chance, stream = self._chance, self.stream
        connection.publish(
            [
                (
                    f"{stream}.{chance.randrange(20)}",
                    chance.randbytes(chance.choice((0, 10, 100, 5_000))),
                    {"Nats-Msg-Id": str(chance.random())} if chance.random() < 0.3 else None,
                )
                for _ in range(chance.randint(1, 60))
            ]
        )
        last = connection.info(stream)["state"]["last_seq"]
        self.published = last
        kind, body = chance.choice(_REMOVALS)
        if chance.random() < 0.3:
            with suppress(Exception):
                connection.request(f"STREAM.{kind}.{stream}", body(chance, self, last))
        time.sleep(self.pace.pause_s)


_REMOVALS: list[tuple[str, Any]] = [
    ("MSG.DELETE", lambda chance, _, last: {"seq": max(1, last - chance.randrange(300))}),
    ("PURGE", lambda chance, load, _: {"filter": f"{load.stream}.{chance.randrange(20)}"}),
    ("PURGE", lambda chance, load, last: {"seq": max(1, last - chance.choice(load.pace.left))}),
]
