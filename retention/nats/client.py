"""The client library's connection, with a parser of ours; the one module that knows private parts of the library."""

from __future__ import annotations

import logging
from collections.abc import Callable

from nats.aio import client as library
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from retention.nats.collector import Collector
from retention.nats.failures import NoTlsError
from retention.nats.frames import FrameParser

_HARMLESS = "returning true from eof_received() has no effect when using ssl"
"""A warning of asyncio at the end of each TLS connection of the library."""
logging.getLogger("asyncio").addFilter(lambda record: record.getMessage() != _HARMLESS)


READ_BYTES = 1 << 20
"""Bytes that are read at once, at most: thirty times those of the library, which copies the rest for every read."""
library.DEFAULT_BUFFER_SIZE = READ_BYTES


class LibraryClient(Client):
    """A client that hands out deliveries as bytes, and says nothing to a server without TLS where TLS is demanded."""

    def __init__(self, on_error: Callable[[str], None], *, needs_tls: bool) -> None:
        super().__init__()
        self.frames = FrameParser(self, on_error)
        self._ps = self.frames
        self._needs_tls = needs_tls

    def collect(self, subscription: Subscription, on_change: Callable[[], None]) -> Collector:
        """Collect the deliveries to a subscription, instead of handing them to the library."""
        return self.frames.collect(subscription._id, on_change)  # noqa: SLF001

    def _connect_command(self) -> bytes:
        """The first line that the client sends: it has the credentials."""
        if self._needs_tls and not self._server_info.get("tls_required"):
            raise NoTlsError
        return super()._connect_command()
