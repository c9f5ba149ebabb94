"""A connection to an Iggy server by Iggy's own client: raw requests and answers, and its errors as sentences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from retention.core.event_loops import close_loop
from retention.errors import RefusedError, RetentionError, StorageError, UsageError
from retention.iggy.settings import IggySettings
from retention.iggy.wire import name_of_request
from retention.storage.signals import NO_STOP, Stop

if TYPE_CHECKING:
    from apache_iggy import IggyClient, TcpConfig

PATIENCE_S = 30.0
"""The time, in seconds, for which a request is repeated while a server that was reached before is away."""
CONNECTED_WITHIN_S = 10.0
"""The longest wait for a connection and its login, seconds."""
ANSWERED_WITHIN_S = 60.0
"""The longest wait for one answer, seconds. An answer can be a message of 64 MB on a slow line."""
_RETRY_S = 0.5
_RECONNECTION_MS = 200
_UNREACHED = (
    "cannot establish connection",
    "not connected",
    "disconnected",
    "connection",
    "client shutdown",
    "stale client",
    "eof",
    "broken pipe",
    "tcp error",
    "timeout",
)
_NOT_ADMITTED = (
    "invalid password",
    "invalid credentials",
    "invalid personal access token",
    "unauthenticated",
)
_NO_VERSION = ("incompatible", "protocol version", "unsupported version")

T = TypeVar("T")


class Requests(Protocol):
    """A way to send raw requests to a server."""

    @property
    def server(self) -> str:
        """The server's address."""

    def request(self, code: int, body: bytes) -> bytes:
        """The body of the answer.

        Raises:
            RefusedError: the server refused.
            StorageError: the server cannot be reached.
        """


class Connection:
    """A connection, used by one thread, as a context manager.

    A request that finds the server stopped or restarted waits and is sent again; all requests here only read. Every
    wait has an end, also for a server that keeps a connection open and says nothing: Iggy's client waits for ever.

    Args:
        settings: the server and the credentials.
        patience_s: the time for which a request is repeated while a server that was reached before is away, seconds.
        answered_within_s: the longest wait for one answer, seconds; a connection has the shorter of it and its own.
        stop: ends the wait for a server that is away, in a thread.
    """

    def __init__(
        self,
        settings: IggySettings,
        patience_s: float = PATIENCE_S,
        answered_within_s: float = ANSWERED_WITHIN_S,
        stop: Stop = NO_STOP,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._patience_s = patience_s
        self._answered_within_s = answered_within_s
        self._loop = asyncio.new_event_loop()
        self._client: IggyClient | None = None

    @property
    def server(self) -> str:
        """The server's address."""
        return self._settings.address

    def __enter__(self) -> Self:
        """Connect and log in.

        Raises:
            UsageError: Iggy's client is not installed.
            RefusedError: the server does not admit the user.
            StorageError: the server cannot be reached.
        """
        try:
            self._connect()
        except BaseException:
            close_loop(self._loop)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._client = None
        close_loop(self._loop)

    def request(self, code: int, body: bytes) -> bytes:
        """The body of the answer to a request.

        Raises:
            RefusedError: the server refused it; the sentence says what the user may not do.
            StorageError: the server cannot be reached, or does not answer, for longer than the patience.
        """
        began = time.monotonic()
        while True:
            try:
                if self._client is None:
                    self._connect()
                return self._answer(code, body)
            except StorageError:
                if time.monotonic() - began >= self._patience_s:
                    raise
            self._client = None
            self._stop.sleep(_RETRY_S)

    def _answer(self, code: int, body: bytes) -> bytes:
        client = self._client
        if client is None:
            raise AssertionError("there is a client after a connection")

        async def send() -> bytes:
            return await client.send_binary_request(code, body)

        act = f"it was asked to {name_of_request(code)}"
        return self._run(send(), act, self._answered_within_s)

    def _connect(self) -> None:
        client = _client(_tcp_config(self._settings))

        async def connect() -> None:
            await client.connect()

        within_s = min(CONNECTED_WITHIN_S, self._answered_within_s)
        self._run(connect(), "a connection was opened", within_s)
        self._client = client

    def _run(self, call: Coroutine[Any, Any, T], act: str, within_s: float) -> T:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(call, within_s))
        except TimeoutError:
            raise StorageError(
                f"Iggy server {self.server}: no answer within {within_s:g} seconds, when {act}; nothing was taken; "
                "look whether the server is stopped or overloaded, and run it again"
            ) from None
        except RuntimeError as error:
            raise self._sentence(str(error), act) from None

    def _sentence(self, reason: str, act: str) -> RetentionError:
        for secret in self._settings.secrets:
            reason = reason.replace(secret, "***")
        place, cause = f"Iggy server {self.server}", reason.lower()
        if cause.startswith(_NOT_ADMITTED):
            who = f"the user {self._settings.username}" if self._settings.username else "the token"
            return RefusedError(
                f"{place}: {reason}: it does not admit {who}; nothing was taken; correct the credentials"
            )
        if cause.startswith("unauthorized"):
            return RefusedError(
                f"{place}: Unauthorized, when {act}; nothing was taken; give the user read_topic for this topic"
            )
        if any(text in cause for text in _NO_VERSION):
            return RefusedError(
                f"{place}: {reason}; nothing was taken; the server must be of version 0.9"
            )
        if any(text in cause for text in _UNREACHED):
            return StorageError(
                f"{place}: {reason}, when {act}; nothing was taken; start the server, or correct --server"
                f"{' and its TLS options' if self._settings.tls else ' (a server with TLS needs ?tls=true)'}"
            )
        return RefusedError(
            f"{place}: {reason}, when {act}; nothing was taken; look at the server's log"
        )


def _tcp_config(settings: IggySettings) -> TcpConfig:
    """The client's configuration: it logs in with each connection, and gives up early, as requests are repeated."""
    try:
        from apache_iggy import AutoLogin, TcpConfig, TcpReconnectionConfig
    except ImportError as error:
        raise UsageError(
            "Iggy's client is not installed; install it with `pip install 'lake-retention[iggy]'`"
        ) from error
    if settings.token is not None:
        login = AutoLogin.personal_access_token(settings.token)
    else:
        login = AutoLogin.username_password(settings.username or "", settings.password or "")
    interval = timedelta(milliseconds=_RECONNECTION_MS)
    return TcpConfig(
        server_address=settings.address,
        auto_login=login,
        reconnection=TcpReconnectionConfig(
            max_retries=1, interval=interval, reestablish_after=interval
        ),
        tls_enabled=settings.tls,
        tls_domain=settings.tls_domain,
        tls_ca_file=settings.tls_ca_file,
    )


def _client(config: TcpConfig) -> IggyClient:
    from apache_iggy import IggyClient

    return IggyClient(config)
