from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from retention.engines.select import EngineName, Engines
from retention.engines.spark import connect
from retention.engines.spark import session as sessions

LIMIT = 100


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that activates a session of some version; any other use of the session fails."""

    def with_version(version: str | None) -> None:
        running = None if version is None else SimpleNamespace(version=version)
        monkeypatch.setattr(sessions, "active_session", lambda: running)
        monkeypatch.setattr(Engines, "_spark_engine", lambda _: SimpleNamespace(name="spark"))

    return with_version


@pytest.mark.parametrize("version", [None, "4.2.0", "4.0.1-amzn-0", "4.3.0", "17"])
@pytest.mark.parametrize(
    ("setting", "size", "engine"),
    [
        ("auto", 0, "local"),
        ("auto", LIMIT, "local"),
        ("auto", LIMIT + 1, "spark"),
        ("local", LIMIT + 1, "local"),
        ("spark", 0, "local"),
        ("spark", 1, "spark"),
    ],
)
def test_the_work_decides_whether_or_not_a_session_is_active(
    active: Any, version: str | None, setting: EngineName, size: int, engine: str
) -> None:
    active(version)
    assert Engines().pick(setting, size, LIMIT).name == engine
    assert Engines(setting).pick("auto", size, LIMIT).name == engine


def test_a_session_that_is_too_old_keeps_work_in_this_process_unless_spark_is_asked_for(
    active: Any,
) -> None:
    active("3.5.7")
    assert Engines().pick("auto", LIMIT + 1, LIMIT).name == "local"
    assert Engines().pick("spark", LIMIT + 1, LIMIT).name == "spark"


def test_a_connect_server_that_did_nothing_is_not_asked_for_its_name(
    active: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    active("4.2.0")
    monkeypatch.setattr(connect, "is_connect", lambda _: True)
    assert Engines().application() is None
