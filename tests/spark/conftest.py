"""A live NATS server for the tests of a module, and a connection that fills its streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nats_process import Admin, NatsProcess, admin, nats_process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    with nats_process(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.fixture
def broker(server: NatsProcess) -> Iterator[Admin]:
    with admin(server.url) as one:
        yield one
