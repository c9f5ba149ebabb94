"""A connection to a NATS server, synchronous: the client library connects, authenticates and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from retention.core.event_loops import close_loop
from retention.errors import ServerError, UsageError
from retention.nats.failures import HungUpError, failure_to_open
from retention.nats.settings import ConnectionSettings
from retention.storage.signals import NO_STOP, Stop

if TYPE_CHECKING:
    from retention.nats.client import LibraryClient

Answer = TypeVar("Answer")

OPENED_WITHIN_S = 5.0
"""For the connection to one server, and for its first answer."""
BACK_WITHIN_S = 120.0
"""A server that is restarted, or fails over, is waited for this long."""
CLOSED_WITHIN_S = 1.0
"""The library waits for the end of a TLS connection that failed, which does not come."""
UNEXPLAINED = 2
"""Attempts at a connection that a server may end without a reason, before that counts."""
_LOOK_EVERY_S = 0.05
_PERMISSION = re.compile(
    r"Permissions Violation for (Publish|Subscription) to \"(\S+)\"", re.IGNORECASE
)
_LIMITS = {
    "maximum subscriptions exceeded": "max_subscriptions to 2 or more",
    "maximum payload violation": "max_payload to 1KB or more",
}
"""Refusals that no wait ends, and the remedy."""


@dataclass(frozen=True)
class Message:
    """An answer; `headers` by name, none without."""

    subject: str
    payload: bytes
    headers: dict[str, str] | None


class _Attempts:
    """The errors while a connection is opened; after one for each server, it ends with the last.

    An end without a reason counts from the third time on: the next attempt may read the reason.
    """

    def __init__(self, servers: int) -> None:
        self._left = servers
        self._unexplained = UNEXPLAINED
        self.last: Exception | None = None
        self.opened = False

    async def note(self, error: Exception) -> None:
        self.last = error
        if isinstance(error, HungUpError) and self._unexplained:
            self._unexplained -= 1
            return
        self._left -= 1
        if not self.opened and self._left <= 0:
            raise _GaveUpError


class _GaveUpError(Exception):
    """No server of the list could be connected to."""


class Connection:
    """One connection, confined to the thread that opened it; it reads only while one of its methods runs."""

    def __init__(self, settings: ConnectionSettings, stop: Stop = NO_STOP) -> None:
        """For `open`, which connects."""
        self.settings = settings
        self._stop = stop
        self._loop = asyncio.new_event_loop()
        self._refusals: list[str] = []
        self._disturbed = asyncio.Event()
        self._client: LibraryClient | None = None
        self._attempts = _Attempts(0)
        self.losses = 0
        """How often the connection was lost."""
        self.on_loss: Callable[[], None] = lambda: None

    @classmethod
    def open(cls, settings: ConnectionSettings, stop: Stop = NO_STOP) -> Connection:
        """Connect to the first of the servers that answers.

        Args:
            settings: the servers and the identity.
            stop: ends the wait for a lost connection, in a thread.

        Raises:
            ServerError: None can be reached.
            UsageError: The settings do not fit the server: authentication, TLS, files; or the package `nats-py` is
                missing.
        """
        connection = cls(settings, stop)
        try:
            connection.run(connection._connect())
        except BaseException:
            connection.close()
            raise
        return connection

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; again is no error."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(Exception):
            if self._client is not None:
                self.run(self._drop(self._client))
        close_loop(self._loop)

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine of this package on the connection's loop; it ends with a signal that interrupts it."""
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        finally:
            task.cancel()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._loop.is_closed()

    @property
    def client(self) -> LibraryClient:
        """The library's client."""
        if self._client is None:
            raise AssertionError("the connection is not open")
        return self._client

    @property
    def server(self) -> str:
        """The server's host and port, without credentials."""
        url = self.client.connected_url
        return f"{url.hostname}:{url.port}" if url is not None else self.settings.hosts

    def api_subject(self, request: str) -> str:
        """The subject of a request to the JetStream API, such as `STREAM.INFO.ORDERS`."""
        return f"{self.settings.api}.{request}"

    def request(self, subject: str, payload: bytes, timeout_s: float) -> Message:
        """Ask, and wait for the first answer; after a lost connection it is asked again.

        Raises:
            UsageError: The server refused it for a missing permission; the sentence names the subject.
            ServerError: Nobody answers to that subject, or not in time, or the connection did not come back.
        """
        return self.run(self.ask(subject, payload, timeout_s))

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> Message:
        """`request`, as a coroutine."""
        while True:
            await self.back()
            losses = self.losses
            asking = asyncio.ensure_future(self._ask_once(subject, payload, timeout_s))
            try:
                while not asking.done() and self.losses == losses:
                    await self._done_or_disturbed(asking)
                    self.check_permissions()
                if asking.done():
                    return await asking
            finally:
                asking.cancel()
                await asyncio.wait((asking,))

    async def _done_or_disturbed(self, asking: asyncio.Future[Message]) -> None:
        """Wait for an answer, a refusal or a loss; a server may say why it hangs up before it does."""
        self._disturbed.clear()
        disturbed = asyncio.ensure_future(self._disturbed.wait())
        try:
            await asyncio.wait((asking, disturbed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            disturbed.cancel()
            await asyncio.wait((disturbed,))

    async def _ask_once(self, subject: str, payload: bytes, timeout_s: float) -> Message:
        import nats.errors

        try:
            answer = await self.client.request(subject, payload, timeout=timeout_s)
        except nats.errors.NoRespondersError as error:
            raise self._nobody(subject) from error
        except nats.errors.MaxPayloadError as error:
            raise self._below_need("maximum payload violation") from error
        except TimeoutError as error:
            raise ServerError(
                f"{self.server} did not answer to {subject} within {timeout_s:g} s; look at the server and the "
                "network, then try again"
            ) from error
        except (nats.errors.Error, OSError) as error:
            raise ServerError(
                f"{self.server}: the connection was lost before the answer to {subject}; try again"
            ) from error
        return Message(answer.subject, answer.data, answer.headers)

    def check_permissions(self) -> None:
        """Raise the server's refusal of a subject, or of a request beyond a limit, if there is one."""
        while self._refusals:
            text = self._refusals.pop(0)
            missing = _PERMISSION.search(text)
            if missing:
                self._refusals.clear()
                raise self._no_permission(missing[1].lower(), missing[2])
            if text.lower() in _LIMITS:
                self._refusals.clear()
                raise self._below_need(text.lower())

    async def back(self, within_s: float = BACK_WITHIN_S) -> None:
        """Wait until the lost connection is there again.

        Raises:
            ServerError: It is not, within that time.
        """
        deadline = self._loop.time() + within_s
        while not self.client.is_connected:
            self._stop.check()
            if self._loop.time() > deadline:
                raise ServerError(
                    f"{self.settings.hosts}: the connection was lost and is not back after {within_s:g} s "
                    f"({self._attempts.last}); start the server or look at the network, then run it again"
                )
            if self.client.is_closed:
                await self._connect_again()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _connect_again(self) -> None:
        with contextlib.suppress(ServerError):
            await self._connect()

    async def _connect(self) -> None:
        client_options, client_of = _library()
        settings = self.settings
        self._client = client = client_of(
            self._on_error,
            needs_tls=settings.needs_tls,
            has_certificate=settings.tls_cert is not None,
        )
        self._attempts = attempts = _Attempts(len(settings.servers))
        try:
            await client.connect(
                **client_options(settings, OPENED_WITHIN_S),
                error_cb=attempts.note,
                disconnected_cb=self._on_disconnect,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
            )
        except _GaveUpError:
            await self._drop(client)
            raise failure_to_open(settings, attempts.last) from attempts.last
        attempts.opened = True

    async def _drop(self, client: LibraryClient) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), CLOSED_WITHIN_S)

    async def _on_disconnect(self) -> None:
        self.losses += 1
        self._disturbed.set()
        self.on_loss()

    def _on_error(self, text: str) -> None:
        self._refusals.append(text)
        self._disturbed.set()
        self.on_loss()

    def _nobody(self, subject: str) -> ServerError:
        where = f"domain {self.settings.domain}" if self.settings.domain else "this account"
        return ServerError(
            f"{self.server}: nobody answers to {subject} (503): JetStream is off in {where}, the server has no leader "
            "for the stream, or the API has another prefix; look at the account, the domain and the API prefix of the "
            "context"
        )

    def _no_permission(self, verb: str, subject: str) -> UsageError:
        right = "publish" if verb == "publish" else "subscribe"
        hint = "" if right == "publish" else ", or set the inbox prefix that the user may use"
        return UsageError(
            f"{self.server} refused to {right} {'to ' if right == 'subscribe' else ''}{subject}: the user has no "
            f"permission; allow {right} on {subject}{hint}"
        )

    def _below_need(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.server} refused it ({reason}): a limit of the server, the account or the user is lower than a "
            f"reader needs; raise {_LIMITS[reason]}"
        )


def _library() -> tuple[Callable[..., dict[str, Any]], type[LibraryClient]]:
    """The parts that need the client library; only a connection loads it."""
    try:
        from retention.nats.client import LibraryClient
        from retention.nats.options import client_options
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a connection to NATS needs the package {error.name}, which is not installed in {sys.prefix}: pip install "
            "'lake-retention[nats]' there, and pack an environment of workers again"
        ) from error
    return client_options, LibraryClient
