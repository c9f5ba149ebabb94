"""A real Iggy server of version 0.9 (`IGGY_SERVER` names its program), and what its users do to it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from apache_iggy import (
    AutoLogin,
    IggyClient,
    Permissions,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
    UserStatus,
)

PROGRAM = os.environ.get("IGGY_SERVER", "")
USER, PASSWORD = "iggy", "a password that no output shows"
STREAM = "shop"
_CREATE_TOPIC, _DELETE_TOPIC, _PURGE_TOPIC, _DELETE_SEGMENTS = 302, 303, 305, 503
_STORE_OFFSET, _CREATE_TOKEN = 121, 42
_START_S = _STOP_S = 600.0
_OTHERS = {name: value for name, value in os.environ.items() if not name.startswith("IGGY_")}
"""The environment of the server, which refuses variables of this prefix that it does not know."""


class IggyServer:
    """A server with a port and a directory of its own."""

    def __init__(self, directory: Path, tls: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self._tls = tls or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        settings = {
            "IGGY_ROOT_USERNAME": USER,
            "IGGY_ROOT_PASSWORD": PASSWORD,
            "IGGY_TCP_ADDRESS": self.address,
            "IGGY_SYSTEM_PATH": str(self.directory / "data"),
            "IGGY_SYSTEM_SHARDING_CPU_ALLOCATION": "1",
            "IGGY_HTTP_ENABLED": "false",
            "IGGY_QUIC_ENABLED": "false",
            "IGGY_WEBSOCKET_ENABLED": "false",
            **self._tls,
        }
        with (self.directory / "out.log").open("ab") as out:
            self._process = subprocess.Popen(
                [PROGRAM], env=_OTHERS | settings, stdout=out, stderr=out, cwd=self.directory
            )
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError((self.directory / "out.log").read_text()[-2_000:])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(_STOP_S)
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP, and go on."""
        assert self._process is not None
        self._process.send_signal(number)

    def call(self, act: Callable[[IggyClient], Awaitable[Any]]) -> Any:
        """One act of the root user, on a connection of its own."""

        async def run() -> Any:
            client = IggyClient(
                TcpConfig(
                    server_address=self.address,
                    auto_login=AutoLogin.username_password(USER, PASSWORD),
                    reconnection=TcpReconnectionConfig(max_retries=3),
                )
            )
            await client.connect()
            return await act(client)

        return asyncio.run(run())

    def request(self, code: int, body: bytes) -> bytes:
        answer: bytes = self.call(lambda client: client.send_binary_request(code, body))
        return answer

    def create_stream(self) -> None:
        self.call(lambda client: client.create_stream(STREAM))

    def create_topic(self, topic: str, partitions: int, **options: int) -> None:
        """Create a topic; by a raw request, because the client's own has options that 0.9.0-edge.5 refuses."""
        body = identifier(STREAM) + struct.pack("<I", partitions) + text(topic)
        self.request(_CREATE_TOPIC, body + b"".join(map(_option, options.items())))

    def purge_topic(self, topic: str) -> None:
        self.request(_PURGE_TOPIC, identifier(STREAM) + identifier(topic))

    def delete_topic(self, topic: str) -> None:
        self.request(_DELETE_TOPIC, identifier(STREAM) + identifier(topic))

    def send(self, topic: str, partition: int, *batches: Sequence[SendMessage]) -> None:
        async def send(client: IggyClient) -> None:
            for batch in batches:
                await client.send_messages(STREAM, topic, partition, list(batch))

        self.call(send)

    def delete_segments(self, topic: str, partition: int, count: int) -> None:
        body = identifier(STREAM) + identifier(topic) + struct.pack("<II", partition, count)
        self.request(_DELETE_SEGMENTS, body)

    def store_offset(
        self, topic: str, partition: int, kind: int, reader: str | int, offset: int
    ) -> None:
        """`kind`: 1 for a consumer, 2 for a group."""
        where = identifier(reader) + identifier(STREAM) + identifier(topic)
        place = struct.pack("<BIQB", 1, partition, offset, 1)
        self.request(_STORE_OFFSET, bytes([kind]) + where + place)

    def create_user(self, name: str, permissions: Permissions | None) -> None:
        """A user with the root user's password."""
        active = UserStatus.Active
        self.call(lambda client: client.create_user(name, PASSWORD, active, permissions))

    def token(self, name: str) -> str:
        answer = self.request(_CREATE_TOKEN, text(name) + struct.pack("<Q", 0))
        return answer[1 : 1 + answer[0]].decode()


def identifier(name: str | int) -> bytes:
    if isinstance(name, int):
        return b"\x01\x04" + struct.pack("<I", name)
    return b"\x02" + text(name)


def text(name: str) -> bytes:
    encoded = name.encode()
    return bytes([len(encoded)]) + encoded


def _option(option: tuple[str, int]) -> bytes:
    name, value = option
    key = struct.pack("<BI", 2, len(name)) + name.encode()
    return key + struct.pack("<BIQ", 12, 8, value)
