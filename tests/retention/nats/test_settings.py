"""Settings out of URLs, the environment and contexts, in the order of the NATS command line."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from retention.errors import UsageError
from retention.nats.settings import ConnectionSettings, settings_of

SECRET = "very-secret-word"  # noqa: S105


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def write(home: dict[str, str], name: str, **values: object) -> None:
    folder = Path(home["HOME"]) / ".config" / "nats" / "context"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(values))


def select(home: dict[str, str], name: str) -> None:
    (Path(home["HOME"]) / ".config" / "nats" / "context.txt").write_text(name + "\n")


def test_without_anything_it_is_the_server_on_this_machine(home: dict[str, str]) -> None:
    assert settings_of(None, None, home) == ConnectionSettings(("nats://127.0.0.1:4222",))


def test_urls_are_a_list_and_hosts_show_no_credentials(home: dict[str, str]) -> None:
    settings = settings_of(f"nats://me:{SECRET}@a:1, tls://b", None, home)
    assert settings.hosts == "a:1, b:4222"
    assert settings.needs_tls
    assert SECRET not in repr(settings)


def test_a_context_has_every_key(home: dict[str, str]) -> None:
    keys = {"jetstream_domain": "hub", "inbox_prefix": "_INBOX_me.", "tls_first": True}
    files = {"ca": "~/ca.pem", "cert": "$HOME/c.pem", "key": "k.pem"}
    write(home, "one", url="nats://a,nats://b", user="me", password=SECRET, nsc="", **keys, **files)
    settings = settings_of(None, "one", home)
    assert settings.servers == ("nats://a", "nats://b")
    assert (settings.user, settings.password) == ("me", SECRET)
    assert (settings.domain, settings.inbox_prefix, settings.tls_first) == (
        "hub",
        "_INBOX_me",
        True,
    )
    assert settings.api == "$JS.hub.API"
    assert settings.tls_ca is not None
    assert settings.tls_ca.endswith("/ca.pem")
    assert "~" not in settings.tls_ca
    assert SECRET not in repr(settings)


def test_an_api_prefix_replaces_the_domain(home: dict[str, str]) -> None:
    write(home, "one", jetstream_domain="hub", jetstream_api_prefix="JSA.")
    assert settings_of(None, "one", home).api == "JSA"


def test_the_selected_context_is_taken_unless_something_else_is_named(home: dict[str, str]) -> None:
    write(home, "one", url="nats://one", user="me", password=SECRET)
    write(home, "two", url="nats://two")
    select(home, "one")
    assert settings_of(None, None, home).servers == ("nats://one",)
    assert settings_of(None, "two", home).servers == ("nats://two",)
    assert settings_of(None, None, {**home, "NATS_CONTEXT": "two"}).servers == ("nats://two",)


def test_a_url_alone_takes_no_credentials_of_a_context(home: dict[str, str]) -> None:
    write(home, "one", url="nats://one", user="me", password=SECRET)
    select(home, "one")
    assert settings_of("nats://other", None, home).password is None
    both = settings_of("nats://other", "one", home)
    assert (both.servers, both.password) == (("nats://other",), SECRET)


def test_the_environment_replaces_what_a_context_says(home: dict[str, str]) -> None:
    write(home, "one", url="nats://one", user="me", password=f"old {SECRET}")
    given = {**home, "NATS_URL": "nats://other", "NATS_PASSWORD": SECRET, "NATS_USER": ""}
    settings = settings_of(None, "one", given)
    assert (settings.servers, settings.user) == (("nats://other",), "me")
    assert settings.password == SECRET


@pytest.mark.parametrize(
    ("keys", "taken"),
    [
        (("user", "password", "creds", "nkey", "token"), "user"),
        (("creds", "nkey", "token"), "creds"),
        (("nkey", "user_jwt", "token"), "nkey"),
        (("user_jwt", "token"), "user_jwt"),
        (("token",), "token"),
    ],
)
def test_one_identity_is_taken(home: dict[str, str], keys: tuple[str, ...], taken: str) -> None:
    write(home, "one", **dict.fromkeys(keys, "value"))
    settings = settings_of(None, "one", home)
    names = ("user", "creds", "nkey", "user_jwt", "token")
    assert [name for name in names if getattr(settings, name)] == [taken]


def test_a_user_without_a_password_is_a_token(home: dict[str, str]) -> None:
    settings = settings_of(None, None, {**home, "NATS_USER": SECRET})
    assert (settings.user, settings.token) == (None, SECRET)


@pytest.mark.parametrize("key", ["nsc", "socks_proxy", "windows_cert_store"])
def test_what_cannot_be_done_is_refused_by_name(home: dict[str, str], key: str) -> None:
    write(home, "one", **{key: SECRET})
    with pytest.raises(
        UsageError, match=f"context one sets {key}, which is not supported"
    ) as caught:
        settings_of(None, "one", home)
    assert SECRET not in str(caught.value)


def test_a_context_that_cannot_be_read_is_named(home: dict[str, str]) -> None:
    write(home, "one")
    with pytest.raises(UsageError, match=r"there is no context two in .*it has one"):
        settings_of(None, "two", home)
    with pytest.raises(UsageError, match="is no name of a context"):
        settings_of(None, "../one", home)
    folder = Path(home["HOME"]) / ".config" / "nats" / "context"
    (folder / "bad.json").write_text(f'{{"password": "{SECRET}"')
    with pytest.raises(UsageError, match="it is not JSON") as caught:
        settings_of(None, "bad", home)
    assert SECRET not in str(caught.value)
    (folder / "list.json").write_text("[]")
    with pytest.raises(UsageError, match="holds no JSON object"):
        settings_of(None, "list", home)


@pytest.mark.parametrize(
    "url",
    [
        *(f"ws://me:{SECRET}@a", "http://a", "nats://", f"nats://:{SECRET}@a:port"),
        *("nats://[::1", "nats://a:0", f"nats://{'a' * 64}", "nats://..", "nats://a/b", " , "),
        *(f"nats://me:{SECRET}/@a", f"nats://me:12#{SECRET}@a", f"nats://me:{SECRET}\u2100@a"),
        *(f"nats://me:1?{SECRET}@a", f"nats://me:1,{SECRET}/@a"),
    ],
)
def test_what_is_no_url_of_a_server_is_refused(home: dict[str, str], url: str) -> None:
    write(home, "one", url=url)
    with pytest.raises(UsageError, match="give nats://HOST:PORT") as caught:
        settings_of(None, "one", home)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_host_is_shown_as_in_its_url(home: dict[str, str]) -> None:
    shown = settings_of(f"nats://[::1]:1,tls://me:{SECRET}@h:/,nats://ü:2", None, home).hosts
    assert shown == "[::1]:1, h:4222, ü:2"


@pytest.mark.parametrize(("server", "context"), [("", None), (" ", "one"), (None, "")])
def test_an_empty_option_is_no_default(
    home: dict[str, str], server: str | None, context: str | None
) -> None:
    write(home, "one", url="nats://one")
    select(home, "one")
    with pytest.raises(UsageError, match="is empty, as if by an unset variable"):
        settings_of(server, context, home)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("url", ["nats://a"], "url to something else than a text"),
        ("user", [SECRET], "user to something else than a text"),
        ("password", 12345, "password to something else than a text"),
        ("tls_first", "no", "tls_first to something else than true or false"),
        ("jetstream_domain", "hub x", "jetstream_domain to 'hub x', which begins no subject"),
        ("jetstream_api_prefix", "JSA..API", "an empty token"),
        ("inbox_prefix", "_INBOX_me.>", "a wildcard"),
    ],
)
def test_a_value_that_would_mislead_a_connection_is_refused(
    home: dict[str, str], key: str, value: object, sentence: str
) -> None:
    write(home, "one", **{key: value})
    with pytest.raises(UsageError, match=f"context one sets .*{sentence}") as caught:
        settings_of(None, "one", home)
    assert SECRET not in str(caught.value)
