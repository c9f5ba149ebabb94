from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from retention.engines.spark.fixed_settings import FIXED, fixed_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Settings(dict[str, str]):
    """The settings of a session."""

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return self[name] if name in self else default  # noqa: SIM401

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


def test_a_session_has_fixed_settings_for_a_while_and_then_its_own() -> None:
    cluster = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC", "mine": "x"}
    settings = Settings(cluster)
    session = cast("SparkSession", SimpleNamespace(conf=settings))
    with fixed_settings(session):
        assert {name: settings.get(name) for name in FIXED} == FIXED
        assert settings["mine"] == "x"
    assert settings == cluster
    with pytest.raises(ZeroDivisionError), fixed_settings(session):
        raise ZeroDivisionError
    assert settings == cluster
