"""Settings of connections to Iggy servers: connection strings, the environment, and secrets that stay secret."""

from __future__ import annotations

import pytest

from retention.errors import UsageError
from retention.iggy.settings import IggySettings, iggy_settings

ENVIRONMENT = {"IGGY_USERNAME": "reader", "IGGY_PASSWORD": "secret"}


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (None, IggySettings("127.0.0.1:8090", "reader", "secret")),
        ("example.org", IggySettings("example.org:8090", "reader", "secret")),
        ("iggy+tcp://h:1", IggySettings("h:1", "reader", "secret")),
        ("iggy://a:b%40c@h:1", IggySettings("h:1", "a", "b@c")),
        (
            "iggy://iggypat-x@h:1",
            IggySettings("h:1", None, None, "iggypat-x"),
        ),
        (
            "iggy+tcp://a:b@h:1?tls=true&tls_domain=d&tls_ca_file=/ca.pem&nodelay=true",
            IggySettings("h:1", "a", "b", tls=True, tls_domain="d", tls_ca_file="/ca.pem"),
        ),
    ],
)
def test_a_server_is_an_address_or_a_connection_string(
    server: str | None, expected: IggySettings
) -> None:
    assert iggy_settings(server, ENVIRONMENT) == expected


def test_a_token_in_the_environment_comes_first() -> None:
    assert iggy_settings("h:1", ENVIRONMENT | {"IGGY_TOKEN": "t"}).secrets == ("t",)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("iggy+quic://a:b@h:1", "only Iggy's TCP listener"),
        ("iggy://a:@h:1", "credentials are incomplete"),
        ("iggy://a:b@h:x", "not an address"),
        ("iggy://a:b@h:70000", "not an address"),
        ("iggy://a:b@h:1?colour=red", "'colour' is not an option"),
    ],
)
def test_what_is_neither_is_refused(server: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        iggy_settings(server, ENVIRONMENT)


def test_missing_credentials_are_refused_with_their_names() -> None:
    with pytest.raises(UsageError, match="IGGY_USERNAME and IGGY_PASSWORD, or IGGY_TOKEN"):
        iggy_settings("h:1", {"IGGY_USERNAME": "reader"})


def test_secrets_are_not_shown() -> None:
    for server in ("iggy://user:hush@h:1", "iggy://hush@h:1"):
        settings = iggy_settings(server, {})
        assert "hush" not in repr(settings)
        assert settings.secrets == ("hush",)
