from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from retention.errors import StorageError
from retention.iggy.connection import Connection
from retention.iggy.settings import IggySettings

pytest.importorskip("apache_iggy")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that lets clients connect and says nothing, as a stopped server does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_says_nothing_is_told_within_a_bounded_time(silent: str) -> None:
    connection = Connection(IggySettings(silent, "iggy", "a secret"), answered_within_s=0.2)
    with pytest.raises(StorageError) as told:
        connection.__enter__()
    assert str(told.value) == (
        f"Iggy server {silent}: no answer within 0.2 seconds, when a connection was opened; nothing was taken; look "
        "whether the server is stopped or overloaded, and run it again"
    )


def test_a_port_without_a_server_is_told_apart_from_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(StorageError, match="start the server, or correct --server"):
        Connection(IggySettings(address, "iggy", "a secret")).__enter__()
