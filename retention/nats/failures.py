"""Sentences for a connection that could not be opened: the server, the reason, and the setting to change."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl

from retention.errors import RetentionError, ServerError, UsageError
from retention.nats.settings import ConnectionSettings
from retention.nats.urls import identity_in

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")
"""Reasons of OpenSSL for an answer that is no TLS."""
_AUTHORIZATION = ("authorization violation", "authentication", "user ")
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class NoTlsError(ssl.SSLError):
    """The server does not ask for TLS, and the settings demand it."""


class NoCertificateError(ssl.SSLError):
    """The server demands a certificate of the client, and the settings have none."""


class HungUpError(ConnectionError):
    """The server ended the connection after its first line, and no reason could be read."""


def failure_to_open(settings: ConnectionSettings, error: Exception | None) -> RetentionError:
    """The error for the last attempt at a connection that could not be opened."""
    if isinstance(error, NoTlsError | NoCertificateError | HungUpError):
        return _greeted(settings, error)
    hosts = settings.hosts
    if isinstance(error, ssl.SSLError):
        return _tls_failure(settings, error)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return _silence(settings)
    if isinstance(error, socket.gaierror):
        return ServerError(f"{hosts}: {error.strerror}; correct the host in the server's URL")
    if isinstance(error, OSError):
        return ServerError(f"{hosts}: {_why(error)}; start the server, or correct its URL")
    return _refusal(settings, str(error))


def _greeted(
    settings: ConnectionSettings, error: NoTlsError | NoCertificateError | HungUpError
) -> RetentionError:
    """The server has sent its first line, and the connection ended there."""
    hosts = settings.hosts
    if isinstance(error, NoTlsError):
        return UsageError(
            f"{hosts} has no TLS, and the settings demand it (tls://, ca, cert or tls_first); nothing was sent to it; "
            "correct the URL, or leave out those settings"
        )
    if isinstance(error, NoCertificateError):
        return UsageError(
            f"{hosts} demands a certificate of the client, and the settings name none; name cert and key (NATS_CERT, "
            "NATS_KEY)"
        )
    certificate = f" or the certificate {settings.tls_cert}" if settings.tls_cert else ""
    return ServerError(
        f"{hosts} answered, and ended the connection before a reason could be read: it refused "
        f"{_identity(settings)}{certificate}, or was stopped just then; look at its log, then correct the credentials "
        "or run it again"
    )


def _why(error: OSError) -> str:
    """The operating system's words for a connection that failed, at the first of several addresses."""
    code = error.errno or next(map(int, _ERRNO.findall(str(error))), 0)
    return os.strerror(code) if code else str(error) or type(error).__name__


def _refusal(settings: ConnectionSettings, text: str) -> RetentionError:
    reason = text.removeprefix("nats: ").strip("' ")
    if any(word in reason.lower() for word in _AUTHORIZATION):
        return UsageError(
            f"{settings.hosts} refused {_identity(settings)} ({reason}); correct the credentials in the context, the "
            "environment (NATS_USER, NATS_CREDS …) or the URL"
        )
    if "expecting INFO" in reason:
        return _silence(settings)
    return ServerError(
        f"{settings.hosts} refused the connection ({reason}); look at the server's log"
    )


def _identity(settings: ConnectionSettings) -> str:
    """The identity of the attempt, without secrets."""
    named = (
        ("user", settings.user),
        ("the credentials", settings.creds),
        ("the nkey", settings.nkey),
    )
    for what, value in named:
        if value:
            return f"{what} {value}"
    if settings.user_jwt:
        return "the JWT"
    if settings.token:
        return "the token"
    in_urls = filter(None, map(identity_in, settings.servers))
    return next(in_urls, "the connection without other credentials")


def _tls_failure(settings: ConnectionSettings, error: ssl.SSLError) -> UsageError:
    hosts = settings.hosts
    if isinstance(error, ssl.SSLCertVerificationError):
        return UsageError(
            f"{hosts}: the server's certificate is not accepted: {error.verify_message}; name the authority that "
            "signed it as ca (NATS_CA), and the server as its certificate does"
        )
    if settings.tls_first and error.reason in _NOT_TLS:
        return UsageError(
            f"{hosts} sends its first line before TLS, and tls_first is set; leave out tls_first, or set "
            "handshake_first at the server"
        )
    return UsageError(
        f"{hosts}: TLS failed ({error.reason or error}); look at ca, cert and key (NATS_CA, NATS_CERT, NATS_KEY), "
        "and at the server's log"
    )


def _silence(settings: ConnectionSettings) -> RetentionError:
    """The server took the connection and said nothing, or nothing answers there."""
    if settings.tls_first:
        return ServerError(
            f"{settings.hosts} did not answer the TLS handshake in time; leave out tls_first if the server sends its "
            "first line before TLS, else look at the server and the network"
        )
    return ServerError(
        f"{settings.hosts} sent nothing in time; set tls_first if the server wants TLS first (handshake_first), else "
        "look at the server, the network and the URL"
    )
