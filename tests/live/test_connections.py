"""Connections as their users know them: each identity and each setting against a server that demands it."""

from __future__ import annotations

import http.server
import json
import re
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from retention.errors import ServerError, UsageError
from retention.nats.connection import Connection
from retention.nats.settings import ConnectionSettings, settings_of
from retention.nats.stream import RemoteStream
from tests.support import nats_identities as identities
from tests.support.nats_identities import Certificates, certificates
from tests.support.nats_process import NatsProcess, admin, nats_process

pytestmark = pytest.mark.live

SECRET = "very-secret-word"  # noqa: S105
COUNT = 3
MIB = 1 << 20
IDLE_S = 60.0
PAGE = Path(__file__).parents[2] / "docs" / "connect-to-nats.md"
PERMISSIONS = tuple(re.findall(r"^\| `(\$JS\S+)` \|", PAGE.read_text(), re.MULTILINE))
"""Subjects that a reader publishes to: its state, its consumer, the messages, the consumer's end; then a single message
and the list of consumers."""
READING = PERMISSIONS[:4]


def fill(settings: ConnectionSettings, name: str = "ORDERS") -> None:
    with admin(settings) as one:
        one.create(name)
        one.publish(f"{name}.a", [b"x"] * COUNT)


def count(settings: ConnectionSettings) -> int:
    with Connection.open(settings) as connection:
        stream = RemoteStream(connection, "ORDERS")
        return sum(batch.num_rows for batch in stream.read(1, stream.info().last_seq, 10, MIB))


def context(directory: Path, **values: object) -> ConnectionSettings:
    """Settings as they come out of a context of the NATS command line."""
    folder = directory / "config" / "nats" / "context"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "live.json").write_text(json.dumps({"description": "", "nsc": "", **values}))
    return settings_of(None, "live", {"XDG_CONFIG_HOME": str(directory / "config")})


def refusal(settings: ConnectionSettings, kind: type[Exception] = UsageError) -> str:
    with pytest.raises(kind) as caught:
        count(settings)
    sentence = str(caught.value)
    assert SECRET not in sentence
    assert SECRET not in repr(settings)
    return sentence


def test_user_and_password(tmp_path: Path) -> None:
    with nats_process(tmp_path, f"authorization {{ user: me, password: {SECRET} }}") as server:
        right = context(tmp_path, url=server.url, user="me", password=SECRET)
        fill(right)
        assert count(right) == COUNT
        assert count(settings_of(f"nats://me:{SECRET}@127.0.0.1:{server.port}", None, {})) == COUNT
        wrong = replace(right, password=SECRET + "x")
        assert "refused user me (Authorization Violation)" in refusal(wrong)
        assert "without other credentials" in refusal(settings_of(server.url, None, {}))
        assert SECRET not in repr(right)
        environment = {"NATS_URL": server.url, "NATS_USER": "me", "NATS_PASSWORD": SECRET}
        assert count(settings_of(None, None, {**environment, "HOME": str(tmp_path)})) == COUNT


def test_a_url_means_its_user_and_password_as_on_the_command_line(tmp_path: Path) -> None:
    odd = f"{SECRET} #/@,?:"
    with nats_process(tmp_path, f'authorization {{ user: "m@e", password: "{odd}" }}') as server:
        right = f"nats://m%40e:{quote(odd, safe='')}@127.0.0.1:{server.port}"
        fill(settings_of(right, None, {}))
        assert count(settings_of(f"nats://127.0.0.1:1,{right}", None, {})) == COUNT
        wrong = refusal(settings_of(right.replace("%23", "%24"), None, {}))
        assert "refused user m@e (Authorization Violation)" in wrong


def test_token(tmp_path: Path) -> None:
    with nats_process(tmp_path, f"authorization {{ token: {SECRET} }}") as server:
        right = context(tmp_path, url=server.url, token=SECRET)
        fill(right)
        assert count(right) == COUNT
        assert count(settings_of(f"nats://{SECRET}@127.0.0.1:{server.port}", None, {})) == COUNT
        assert "refused the token" in refusal(replace(right, token=SECRET + "x"))
        assert "refused the token" in refusal(
            settings_of(f"nats://{SECRET}x@127.0.0.1:{server.port}", None, {})
        )


def test_nkey(tmp_path: Path) -> None:
    one, other = identities.user(), identities.user()
    seed, wrong = tmp_path / "user.nk", tmp_path / "other.nk"
    seed.write_text(one.seed + "\n")
    wrong.write_text(other.seed)
    with nats_process(tmp_path, f"authorization {{ users: [{{nkey: {one.public}}}] }}") as server:
        right = context(tmp_path, url=server.url, nkey=str(seed))
        fill(right)
        assert count(right) == COUNT
        sentence = refusal(replace(right, nkey=str(wrong)))
        assert f"refused the nkey {wrong}" in sentence
        wrong.write_text(SECRET)
        assert "holds no seed of a user" in refusal(replace(right, nkey=str(wrong)))
        assert "No such file" in refusal(replace(right, nkey=str(tmp_path / "none")))


@pytest.fixture(scope="module")
def signed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[NatsProcess, identities.Identity]]:
    """A server of an operator, with a memory resolver, and the account whose users may come."""
    operator, system, account = identities.operator(), identities.account(), identities.account()
    preload = {
        system.public: identities.account_token(operator, system, has_jetstream=False),
        account.public: identities.account_token(operator, account, has_jetstream=True),
    }
    settings = (
        f"operator: {operator.token(operator.public, {'type': 'operator'})}\n"
        f"system_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {', '.join(f'{key}: {jwt}' for key, jwt in preload.items())} }}\n"
    )
    with nats_process(tmp_path_factory.mktemp("jwt"), settings) as server:
        yield server, account


def test_credentials_file_jwt_and_bearer_token(
    signed: tuple[NatsProcess, identities.Identity], tmp_path: Path
) -> None:
    server, account = signed
    one = identities.user()
    token = identities.user_token(account, one)
    path = tmp_path / "me.creds"
    path.write_text(identities.credentials(token, one.seed))
    right = context(tmp_path, url=server.url, creds=str(path))
    fill(right)
    assert count(right) == COUNT
    assert count(context(tmp_path, url=server.url, user_jwt=token, user_seed=one.seed)) == COUNT
    bearer = identities.user_token(account, one, is_bearer=True)
    assert count(context(tmp_path, url=server.url, user_jwt=bearer)) == COUNT
    assert "refused the JWT" in refusal(context(tmp_path, url=server.url, user_jwt=token))
    stranger = identities.user_token(identities.account(), one)
    path.write_text(identities.credentials(stranger, one.seed))
    assert f"refused the credentials {path}" in refusal(right)
    path.write_text(SECRET)
    assert "is no credentials file" in refusal(right)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("pem"))


def tls_block(pem: Certificates, more: str = "") -> str:
    return (
        f'tls {{ cert_file: "{pem.server_cert}", key_file: "{pem.server_key}", '
        f'ca_file: "{pem.ca}", {more} }}'
    )


def test_tls_with_an_authority_of_its_own_and_a_client_certificate(
    pem: Certificates, tmp_path: Path
) -> None:
    with nats_process(tmp_path, tls_block(pem, "verify: true")) as server:
        given = {"url": server.url, "ca": pem.ca, "cert": pem.client_cert, "key": pem.client_key}
        right = context(tmp_path, **given)
        fill(right)
        assert count(right) == COUNT
        assert "NATS_CA" in refusal(replace(right, tls_ca=pem.other_ca))
        assert "not accepted" in refusal(settings_of(server.url, None, {}))
        assert "KEY_VALUES_MISMATCH" in refusal(replace(right, tls_key=pem.server_key))
        without = replace(right, tls_cert=None, tls_key=None)
        assert "demands a certificate of the client" in refusal(without)


def test_a_server_without_tls_gets_no_credentials_where_tls_is_demanded(
    pem: Certificates, tmp_path: Path
) -> None:
    with nats_process(
        tmp_path, f"authorization {{ user: me, password: {SECRET} }}\ntrace: true"
    ) as server:
        url = f"tls://me:{SECRET}@127.0.0.1:{server.port}"
        assert "has no TLS, and the settings demand it" in refusal(settings_of(url, None, {}))
        ca = context(tmp_path, url=server.url, user="me", password=SECRET, ca=pem.ca)
        assert "has no TLS" in refusal(ca)
        assert "CONNECT" not in server.log.read_text()


def test_tls_first_and_the_sentence_if_it_is_wrong_either_way(
    pem: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention.nats.connection.OPENED_WITHIN_S", 1)
    first, later = tmp_path / "first", tmp_path / "later"
    first.mkdir()
    later.mkdir()
    with (
        nats_process(first, tls_block(pem, "handshake_first: true")) as one,
        nats_process(later, tls_block(pem)) as other,
    ):
        right = context(tmp_path, url=one.url, ca=pem.ca, tls_first=True)
        fill(right)
        assert count(right) == COUNT
        assert "set tls_first" in refusal(replace(right, tls_first=False), Exception)
        assert "leave out tls_first" in refusal(replace(right, servers=(other.url,)), Exception)


def test_a_domain_and_an_api_prefix(tmp_path: Path) -> None:
    with nats_process(tmp_path, "", "domain: hub") as server:
        right = context(tmp_path, url=server.url, jetstream_domain="hub")
        fill(settings_of(server.url, None, {}))
        assert count(right) == COUNT
        assert count(context(tmp_path, url=server.url, jetstream_api_prefix="$JS.hub.API")) == COUNT
        wrong = context(tmp_path, url=server.url, jetstream_domain="nowhere")
        sentence = refusal(wrong, ServerError)
        assert "nobody answers to $JS.nowhere.API.STREAM.INFO.ORDERS (503)" in sentence
        assert "domain nowhere" in sentence


def test_an_imported_api(tmp_path: Path) -> None:
    accounts = """accounts {
      A: { jetstream: enabled, users: [{user: a, password: a}],
           exports: [{service: "$JS.API.>", response_type: stream, accounts: [B]}] }
      B: { users: [{user: b, password: b}],
           imports: [{service: {account: A, subject: "$JS.API.>"}, to: "JSA.>"}] } }"""
    with nats_process(tmp_path, accounts) as server:
        fill(context(tmp_path, url=server.url, **dict.fromkeys(("user", "password"), "a")))
        given = {"url": server.url, "user": "b", "password": "b"}
        assert count(context(tmp_path, **given, jetstream_api_prefix="JSA")) == COUNT
        assert "JetStream not enabled for account (server error 10039)" in refusal(
            context(tmp_path, **given)
        )


@contextmanager
def restricted(
    directory: Path, publish: tuple[str, ...], subscribe: str = "_INBOX.>"
) -> Iterator[tuple[NatsProcess, ConnectionSettings]]:
    """A server with a stream, and settings of a user who may do that much."""
    directory.mkdir(exist_ok=True)
    rights = f"publish: {json.dumps(publish)}, subscribe: {json.dumps(subscribe)}"
    users = (
        f"accounts {{ A: {{ jetstream: enabled, users: [{{user: all, password: all}}, "
        f"{{user: me, password: me, permissions: {{ {rights} }} }}] }} }}"
    )
    with nats_process(directory, users) as server:
        fill(settings_of(f"nats://all:all@127.0.0.1:{server.port}", None, {}))
        yield server, settings_of(f"nats://me:me@127.0.0.1:{server.port}", None, {})


def test_the_least_permissions_are_enough(tmp_path: Path) -> None:
    with restricted(tmp_path, READING) as (_, settings):
        assert count(settings) == COUNT


def test_the_permissions_of_the_page_are_enough_for_all_questions(tmp_path: Path) -> None:
    with (
        restricted(tmp_path, PERMISSIONS) as (_, settings),
        Connection.open(settings) as connection,
    ):
        stream = RemoteStream(connection, "ORDERS")
        assert stream.message(1) is not None
        assert stream.message(COUNT + 1) is None
        assert stream.consumers() == []
    with restricted(tmp_path / "less", READING) as (_, settings), Connection.open(settings) as one:
        with pytest.raises(UsageError, match=r"allow publish on \$JS.API.STREAM.MSG.GET.ORDERS"):
            RemoteStream(one, "ORDERS").message(1)
        with pytest.raises(UsageError, match=r"allow publish on \$JS.API.CONSUMER.LIST.ORDERS"):
            RemoteStream(one, "ORDERS").consumers()


@pytest.mark.parametrize("missing", READING[:3])
def test_a_missing_permission_is_named(tmp_path: Path, missing: str) -> None:
    with restricted(tmp_path, tuple(set(READING) - {missing})) as (_, settings):
        assert f"allow publish on {missing.rstrip('*')}" in refusal(settings)


def test_a_reader_that_may_not_delete_its_consumer_still_reads(tmp_path: Path) -> None:
    with restricted(tmp_path, READING[:3]) as (_, settings):
        assert count(settings) == COUNT


def test_an_inbox_prefix(tmp_path: Path) -> None:
    with restricted(tmp_path, READING, "_INBOX_me.>") as (_, settings):
        sentence = refusal(settings)
        assert "refused to subscribe to _INBOX." in sentence
        assert "set the inbox prefix" in sentence
        assert count(replace(settings, inbox_prefix="_INBOX_me")) == COUNT


def test_an_account_without_jetstream(tmp_path: Path) -> None:
    with nats_process(tmp_path, "accounts { A: { users: [{user: a, password: a}] } }") as server:
        settings = settings_of(f"nats://a:a@127.0.0.1:{server.port}", None, {})
        assert "JetStream not enabled for account" in refusal(settings)


@pytest.mark.parametrize(
    ("of_the_account", "of_the_server", "sentence"),
    [
        ("limits: {max_subscriptions: 1},", "", "raise max_subscriptions to 2 or more"),
        ("", "max_payload: 100", "raise max_payload to 1KB or more"),
    ],
)
def test_a_limit_below_what_a_reader_needs_is_named_at_once(
    tmp_path: Path, of_the_account: str, of_the_server: str, sentence: str
) -> None:
    users = (
        f"accounts {{ A: {{ jetstream: enabled, %s users: [{{user: a, password: {SECRET}}}] }} }}"
    )
    with nats_process(tmp_path, users % "") as server:
        fill(settings_of(f"nats://a:{SECRET}@127.0.0.1:{server.port}", None, {}))
    with nats_process(tmp_path, f"{users % of_the_account}\n{of_the_server}") as server:
        settings = settings_of(f"nats://a:{SECRET}@127.0.0.1:{server.port}", None, {})
        assert sentence in refusal(settings)


def test_a_stream_without_room_for_a_consumer_is_told_with_the_ways_out(tmp_path: Path) -> None:
    with nats_process(tmp_path) as server, admin(server.url) as one:
        one.create("ORDERS", max_consumers=1)
        one.publish("ORDERS.a", [b"x"] * COUNT)
        settings = settings_of(server.url, None, {})
        config = {"durable_name": "app", "ack_policy": "explicit"}
        one.api("CONSUMER.CREATE.ORDERS.app", {"stream_name": "ORDERS", "config": config})
        sentence = refusal(settings, ServerError)
        assert "raise max_consumers" in sentence
        assert "nats consumer ls ORDERS" in sentence
        one.api("CONSUMER.DELETE.ORDERS.app")
        assert count(settings) == COUNT


def test_servers_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    with nats_process(tmp_path) as server:
        two = f"nats://127.0.0.1:1,{server.url}"
        fill(settings_of(two, None, {}))
        assert count(settings_of(two, None, {})) == COUNT
    gone = settings_of(f"nats://127.0.0.1:1,{server.url}", None, {})
    sentence = refusal(gone, ServerError)
    assert f"127.0.0.1:1, 127.0.0.1:{server.port}" in sentence
    assert "Connection refused; start the server" in sentence
    nowhere = refusal(settings_of("nats://nowhere.invalid", None, {}), ServerError)
    assert "nowhere.invalid:4222" in nowhere
    assert "correct the host" in nowhere


@contextmanager
def answering(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """Something at a port that is no NATS server; yields the port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            yield other.server_address[1]
        finally:
            other.shutdown()


def test_a_connection_that_the_server_gave_up_while_nothing_was_asked_comes_back(
    tmp_path: Path,
) -> None:
    """A commit, or tasks of Spark, may take longer than a server waits for the answer to its pings."""
    with nats_process(tmp_path, 'debug: true\nping_interval: "1s"\nping_max: 1') as server:
        settings = settings_of(server.url, None, {})
        fill(settings)
        with Connection.open(settings) as connection:
            stream = RemoteStream(connection, "ORDERS")
            assert stream.info().messages == COUNT
            until = time.monotonic() + IDLE_S
            while "Stale Client Connection" not in server.log.read_text():
                assert time.monotonic() < until
                time.sleep(0.1)
            assert stream.info().messages == COUNT
            assert connection.losses == 1


def test_something_else_that_answers_at_the_port_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention.nats.connection.OPENED_WITHIN_S", 0.5)
    with answering(http.server.BaseHTTPRequestHandler) as port:
        sentence = refusal(settings_of(f"nats://127.0.0.1:{port}", None, {}), ServerError)
    assert "sent nothing in time" in sentence


def test_a_refusal_is_told_although_the_server_resets_the_connection(tmp_path: Path) -> None:
    with nats_process(tmp_path, "max_connections: 1") as full:
        settings = settings_of(full.url, None, {})
        with Connection.open(settings):
            sentences = {refusal(settings, ServerError) for _ in range(20)}
            assert {"maximum connections exceeded" in sentence for sentence in sentences} == {True}
            (tmp_path / "other").mkdir()
            with nats_process(tmp_path / "other") as free:
                both = settings_of(f"{full.url},{free.url}", None, {})
                fill(both)
                assert count(both) == COUNT


class HangingUp(socketserver.BaseRequestHandler):
    """Greets as a server does, and resets the connection."""

    def handle(self) -> None:
        self.request.sendall(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576}\r\n')
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.recv(1)


def test_a_server_that_hangs_up_without_a_reason_is_told() -> None:
    user = {"NATS_USER": "me", "NATS_PASSWORD": SECRET}
    with answering(HangingUp) as port:
        settings = settings_of(f"nats://127.0.0.1:{port}", None, user)
        sentence = refusal(settings, ServerError)
    assert "ended the connection before a reason could be read: it refused user me" in sentence
