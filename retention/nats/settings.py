"""Settings of a connection to NATS: a URL, or a context of the NATS command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

DEFAULT_SERVER = "nats://127.0.0.1:4222"


@dataclass(frozen=True)
class ConnectionSettings:
    """How to reach servers of one cluster, and as whom; `repr` shows no secret."""

    servers: tuple[str, ...] = field(default=(DEFAULT_SERVER,), repr=False)
    """URLs; they may hold credentials."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    creds: str | None = None
    nkey: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    tls_first: bool = False
    domain: str | None = None
    api_prefix: str | None = None
    inbox_prefix: str | None = None

    @property
    def hosts(self) -> str:
        """The servers without credentials, for sentences."""
        return ", ".join(_host(url) for url in self.servers)

    @property
    def api(self) -> str:
        """The prefix of the JetStream API."""
        if self.api_prefix:
            return self.api_prefix.rstrip(".")
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    @property
    def needs_tls(self) -> bool:
        """Whether a server without TLS is refused."""
        named = self.tls_ca or self.tls_cert or self.tls_first
        return bool(named) or any(url.startswith("tls://") for url in self.servers)


def settings_of(server: str | None, context: str | None) -> ConnectionSettings:
    """The settings for a list of URLs with commas."""
    del context
    return ConnectionSettings(servers=tuple((server or DEFAULT_SERVER).split(",")))


def _host(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return f"{parts.hostname}:{parts.port or 4222}"
