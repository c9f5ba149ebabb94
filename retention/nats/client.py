"""The client library's connection, with a parser of ours; the one module that knows private parts of the library."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from urllib.parse import ParseResult

import nats.errors
from nats.aio import client as library
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from retention.nats.collector import Collector
from retention.nats.failures import HungUpError, NoCertificateError, NoTlsError
from retention.nats.frames import FrameParser
from retention.nats.urls import as_meant

_HARMLESS = "returning true from eof_received() has no effect when using ssl"
"""A warning of asyncio at the end of each TLS connection of the library."""
logging.getLogger("asyncio").addFilter(lambda record: record.getMessage() != _HARMLESS)


_REFUSAL = re.compile(rb"-ERR '(.*)'")
READ_BYTES = 1 << 20
"""Bytes that are read at once, at most: thirty times those of the library, which copies the rest for every read."""
library.DEFAULT_BUFFER_SIZE = READ_BYTES


class LibraryClient(Client):
    """A client that hands out deliveries as bytes, and says nothing to a server without TLS where TLS is demanded."""

    def __init__(
        self, on_error: Callable[[str], None], *, needs_tls: bool, has_certificate: bool
    ) -> None:
        super().__init__()
        self.frames = FrameParser(self, on_error)
        self._ps = self.frames
        self._needs_tls, self._has_certificate = needs_tls, has_certificate

    @property
    def is_reading(self) -> bool:
        """Whether answers can come: a signal while bytes are read ends the task that reads them."""
        return self._reading_task is not None and not self._reading_task.done()

    def collect(self, subscription: Subscription, on_change: Callable[[], None]) -> Collector:
        """Collect the deliveries to a subscription, instead of handing them to the library."""
        return self.frames.collect(subscription._id, on_change)  # noqa: SLF001

    @staticmethod
    def _parse_server_uri(connect_url: str) -> ParseResult:
        """The URL with its credentials decoded, which the library sends as they are."""
        return as_meant(Client._parse_server_uri(connect_url))  # noqa: SLF001

    async def _process_connect_init(self) -> None:
        """Greet a server; a reason that came before it reset the connection is the error, not the reset."""
        greeted = self._server_info
        try:
            await super()._process_connect_init()
        except ConnectionError as error:
            if self._server_info is greeted:
                raise
            reason = _REFUSAL.search(self._unread())
            if reason is None:
                raise HungUpError("the server hung up") from error
            raise nats.errors.Error(f"nats: {reason[1].decode(errors='replace')}") from error
        if not self.is_connected:
            self._forget_tasks()
            raise HungUpError("the server hung up")

    def _forget_tasks(self) -> None:
        """Cancel the tasks of a connection that ended before its first answer, which the library takes for one."""
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()

    def _unread(self) -> bytes:
        """The bytes that came from the server and that the library no longer hands out after a reset."""
        reader = getattr(self._transport, "_io_reader", None)
        return bytes(getattr(reader, "_buffer", b""))

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002
        """Close the connection; a reset while it closes is no error, and would hide the refusal before it."""
        on_error, self._error_cb = self._error_cb, _untold
        try:
            await super()._close(status, do_cbs)
        finally:
            self._error_cb = on_error

    def _connect_command(self) -> bytes:
        """The first line that the client sends: it has the credentials."""
        if self._needs_tls and not self._server_info.get("tls_required"):
            raise NoTlsError
        if self._server_info.get("tls_verify") and not self._has_certificate:
            raise NoCertificateError("it demands a client certificate")
        return super()._connect_command()


async def _untold(_error: Exception) -> None:
    """Tell nobody of an error."""
