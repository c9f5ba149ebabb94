from __future__ import annotations

import importlib.metadata
import logging
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retention.engines.spark import versions
from retention.engines.spark.versions import (
    COMPANIONS,
    companions_of,
    delta_of,
    installed_spark,
    is_too_old,
    refuse_too_old,
    warn_of_untested,
)
from retention.errors import UsageError

ROOT = Path(__file__).parents[4]
MINORS = {
    "4.0.1": "4.0",
    "4.0.1-amzn-0": "4.0",
    "4.0.0-eep-2025": "4.0",
    "4.1.0.dbr-17.3": "4.1",
    "4.1.0+local.7": "4.1",
    "4.1": "4.1",
    "4.2.0": "4.2",
    "4.2.17": "4.2",
    "4.2.0-SNAPSHOT": "4.2",
}


@pytest.mark.parametrize(("version", "minor"), MINORS.items(), ids=MINORS)
def test_a_minor_version_decides_whatever_a_vendor_adds(version: str, minor: str) -> None:
    assert companions_of(version) is COMPANIONS[minor]
    refuse_too_old(version)


@pytest.mark.parametrize("version", ["4.3.0", "3.5.7", "5.0.0", "", "main"])
def test_a_spark_without_a_delta_is_one_sentence(version: str) -> None:
    with pytest.raises(
        UsageError, match=r"^no Delta is known for Spark [^\n]*--engine local[^\n]*$"
    ):
        companions_of(version)


@pytest.mark.parametrize(
    ("stated", "by_itself"),
    [
        (["pyspark<=4.2.0,>=4.0.1", "importlib_metadata<=8.7.1,>=1.0.0"], True),
        (["pyspark==4.2.0"], True),
        (["pyspark<4.2.0,>=4.0.0"], False),
        (["pyspark>=4.3.0"], False),
        (None, False),
    ],
)
def test_delta_spark_names_its_own_jars_to_a_spark_that_it_allows(
    stated: list[str] | None, by_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requires(name: str) -> list[str]:
        if stated is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return stated

    by_hand = replace(COMPANIONS["4.2"], delta=("delta-spark_by_hand", "0"))
    monkeypatch.setitem(COMPANIONS, "4.2", by_hand)
    monkeypatch.setattr(importlib.metadata, "requires", requires)
    own = ("delta-spark_4.2_2.13", importlib.metadata.version("delta-spark"))
    assert delta_of("4.2.1") == (own if by_itself else by_hand.delta)


@pytest.mark.parametrize(
    ("version", "old"),
    [
        *(("3.5.7", True), ("2.4", True), ("3.5.0-amzn-1", True)),
        *(("4.0.0", False), ("4.3.1", False), ("10.1", False), ("main", False)),
    ],
)
def test_only_a_spark_before_4_is_too_old(version: str, old: bool) -> None:
    assert is_too_old(version) is old
    if old:
        with pytest.raises(UsageError, match=r"too old: [^\n]*--engine local[^\n]*$"):
            refuse_too_old(version)


@pytest.mark.parametrize(
    ("version", "times"),
    [("4.0.1-amzn-0", 1), ("4.2.9", 1), ("4.3.0", 1), ("main", 1)]
    + [(version, 0) for known in COMPANIONS.values() for version in known.tested],
)
def test_an_untested_spark_is_a_warning_once(
    version: str, times: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_warned", set())
    with caplog.at_level(logging.WARNING, "retention.spark"):
        warn_of_untested(version)
        warn_of_untested(version)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == times
    assert all(line.startswith(f"Spark {version} is not one that was tested (4.") for line in said)


def test_every_minor_version_has_tested_patches_of_its_own() -> None:
    for minor, known in COMPANIONS.items():
        assert known.tested
        assert all(version.startswith(f"{minor}.") for version in known.tested)
        assert known.delta[0] == f"delta-spark_{minor}_2.13"


def test_the_extra_installs_the_delta_that_goes_with_every_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = [line for line in project["optional-dependencies"]["spark"] if "delta" in line]
    assert {f"delta-spark=={known.delta[1]}" for known in COMPANIONS.values()} == {*pinned}


def test_the_client_of_spark_connect_alone_starts_no_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(UsageError, match=r"^pyspark is not installed [^\n]*SPARK_REMOTE[^\n]*$"):
        installed_spark()


def test_the_names_of_delta_s_jars_are_those_that_delta_spark_gives() -> None:
    from delta.pip_utils import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    builder = configure_spark_with_delta_pip(SparkSession.Builder())
    named = ":".join(("io.delta", *delta_of(installed_spark())))
    assert builder._options["spark.jars.packages"] == named
