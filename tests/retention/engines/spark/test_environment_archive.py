from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from retention.engines.spark import environment_archive
from retention.engines.spark.environment_archive import OF_THE_CLUSTER, pack_environment, required
from retention.errors import RetentionError, UsageError


def test_what_is_packed_is_what_the_project_asks_for_without_spark() -> None:
    names = {re.sub("[._]", "-", distribution.name.lower()) for distribution in required()}
    for line in metadata.requires("lake-retention") or ():
        name = re.split("[=<>]", line)[0].strip().lower()
        assert "extra" in line or name in names or name in OF_THE_CLUSTER
    assert {"arro3-core", "pandas", "six"} <= names, "what these need is needed, too"
    assert not {"pyspark", "py4j", "pytest", "duckdb", "grpcio"} & names


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no-such-project is not installed"):
        required("no-such-project")
    monkeypatch.setattr(metadata, "requires", lambda _: ["no_such.package>=1", "other; os == 'x'"])
    with pytest.raises(UsageError, match="no-such-package is not installed"):
        required()


def test_the_client_of_a_live_server_is_packed_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {
        "lake-retention": ["nats-py[nkeys]>=2.16; extra == 'nats'", "duckdb; extra == 'bench'"],
        "nats-py": ["nkeys; extra == 'nkeys'", "aiohttp; extra == 'aiohttp'"],
    }
    monkeypatch.setattr(metadata, "requires", lambda name: asked.get(name, []))
    assert [distribution.name for distribution in required()] == ["nats-py", "nkeys"]
    asked["lake-retention"] = ["no-such-package; extra == 'nats'"]
    assert required() == []


def test_an_interpreter_that_cannot_be_moved_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_archive, "_copy_packages", lambda _: None)
    with pytest.raises(RetentionError, match=r"does not run elsewhere .*--py-files"):
        pack_environment(tmp_path / "environment.tar.gz")
    assert list(tmp_path.iterdir()) == []
