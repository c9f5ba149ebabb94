"""Why a connection could not be opened, as one sentence: the server, the reason, and the setting to change."""

from __future__ import annotations

import asyncio
import socket
import ssl

from retention.errors import RetentionError, ServerError, UsageError
from retention.nats.settings import ConnectionSettings


def failure_to_open(settings: ConnectionSettings, error: Exception | None) -> RetentionError:
    """The error for the last attempt of a connection that could not be opened."""
    hosts = settings.hosts
    if isinstance(error, ssl.SSLError):
        return _tls_failure(settings, error)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return _silence(settings)
    if isinstance(error, socket.gaierror):
        return ServerError(f"{hosts}: no such host ({error.strerror}); correct the server's URL")
    if isinstance(error, OSError):
        return ServerError(
            f"{hosts}: {error.strerror or error}; start the server, or correct the server's URL"
        )
    text = str(error).removeprefix("nats: ").strip("' ")
    return ServerError(f"{hosts}: {text}; look at the server's log")


def _tls_failure(settings: ConnectionSettings, error: ssl.SSLError) -> UsageError:
    return UsageError(f"{settings.hosts}: {error.reason or error}")


def _silence(settings: ConnectionSettings) -> ServerError:
    return ServerError(f"{settings.hosts} did not answer in time")
