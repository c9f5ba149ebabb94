"""URLs of NATS servers: checked, shown without credentials, and with credentials as they are meant."""

from __future__ import annotations

from urllib.parse import ParseResult, SplitResult, unquote, urlsplit

from retention.errors import UsageError

DEFAULT_PORT = 4222
_SCHEMES = ("nats", "tls")
_GIVE = (
    "give nats://HOST:PORT, or tls://HOST:PORT for TLS alone (several with commas; in a password write / ? # , @ as "
    "%2F %3F %23 %2C %40)"
)


def servers_in(text: str, where: str) -> tuple[str, ...]:
    """The URLs in a list with commas, each with a scheme.

    Raises:
        UsageError: there is none, or one is no URL of a server; the sentence shows no credentials.
    """
    urls = tuple(_checked(url.strip()) for url in text.split(",") if url.strip())
    if not urls:
        raise UsageError(f"{where} names no server; {_GIVE}")
    return urls


def host_of(url: str) -> str:
    """Host and port of a URL, without credentials."""
    parts = _split(url)
    host = parts.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or DEFAULT_PORT}"


def identity_in(url: str) -> str | None:
    """The identity in a URL without its secret; None: there is none."""
    parts = _split(url)
    if not parts.username:
        return None
    return "the token" if parts.password is None else f"user {unquote(parts.username)}"


def as_meant(url: ParseResult) -> ParseResult:
    """A URL with its user, password or token decoded: `%40` means `@`, as for the NATS command line."""
    credentials, at, host = url.netloc.rpartition("@")
    return url._replace(netloc=f"{unquote(credentials)}{at}{host}")


def _checked(url: str) -> str:
    parts = _split(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        shown = f"{parts.scheme}://{parts.hostname or ''}"
        raise UsageError(f"{shown} is no URL of a NATS server; {_GIVE}")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError(f"the URL of a NATS server goes on after its port; {_GIVE}")
    return url if "://" in url else f"nats://{url}"


def _split(url: str) -> SplitResult:
    # Errors of the library, and a cause in a trace, would show the password.
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
    except ValueError:
        raise UsageError(
            f"the URL of a NATS server has brackets or characters that no host has; {_GIVE}"
        ) from None
    try:
        is_port = parts.port != 0
    except ValueError:
        is_port = False
    if not is_port:
        raise UsageError(f"the URL of {parts.hostname} has no valid port; {_GIVE}")
    try:
        (parts.hostname or "").encode("idna")
    except UnicodeError:
        raise UsageError(f"{parts.hostname} is no name of a host; {_GIVE}") from None
    return parts
