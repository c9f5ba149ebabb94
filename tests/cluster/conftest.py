"""One cluster for all of these tests, and the parts shipped to its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Brought, Cluster, brought_environment, brought_zip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests to `make long NAME=cluster`."""
    if os.environ.get("RETENTION_CLUSTER") != "all":
        long = [item for item in items if item.get_closest_marker("cluster")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster; each test leaves it unchanged."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def by_zip(tmp_path_factory: pytest.TempPathFactory) -> Brought:
    """This package in a zip, with an environment of the workers that has its dependencies."""
    return brought_zip(tmp_path_factory.mktemp("brought"))


@pytest.fixture(scope="session")
def by_environment(tmp_path_factory: pytest.TempPathFactory) -> Brought:
    """A whole environment in an archive, for workers without any packages."""
    return brought_environment(tmp_path_factory.mktemp("brought"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder shared by the driver and the workers."""
    return tmp_path
