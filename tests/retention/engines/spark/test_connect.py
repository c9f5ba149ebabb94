from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import PySparkException

from retention.engines.spark import connect
from retention.engines.spark.attempts import attempts_of
from retention.engines.spark.connect import is_connect, reach, setting_of
from retention.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def connect_session() -> SparkSession:
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    return cast("SparkSession", kind())


def test_a_session_is_told_by_its_class_alone() -> None:
    assert is_connect(connect_session())
    assert not is_connect(cast("SparkSession", SimpleNamespace()))


def test_a_missing_client_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_CLIENT", ("no_such_module", "no.such.module"))
    with pytest.raises(UsageError, match=r"^SPARK_REMOTE [^\n]*lake-retention\[connect\][^\n]*$"):
        reach("sc://127.0.0.1")


def test_a_server_that_does_not_answer_is_one_sentence_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connect, "_CLIENT", ("json", "xml.dom"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach(f"sc://127.0.0.1:{port}/;token=secret")
    with pytest.raises(
        UsageError, match=r"^no Spark Connect server [^\n]*127\.0\.0\.1[^\n]*$"
    ) as refused:
        reach(f"sc://127.0.0.1:{port}/;token=secret")
    assert "secret" not in str(refused.value)
    with pytest.raises(UsageError, match="no Spark Connect server"):
        reach("sc://127.0.0.1:port")
    reach("local[2]")


def test_a_setting_that_a_server_tells_nobody_is_none() -> None:
    def refuse(name: str, default: str | None) -> str | None:
        raise PySparkException(f"[CONFIG_NOT_AVAILABLE] {name} {default}")

    silent = SimpleNamespace(conf=SimpleNamespace(get=refuse))
    open_ = SimpleNamespace(conf=SimpleNamespace(get=lambda name, _: f"{name}: 4"))
    assert setting_of(cast("SparkSession", silent), "spark.app.id") is None
    assert setting_of(cast("SparkSession", open_), "spark.app.id") == "spark.app.id: 4"
    assert attempts_of(cast("SparkSession", silent)) == 4
