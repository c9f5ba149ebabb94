"""A real Spark Connect server: a process of its own, tuned for a machine of two cores."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retention.engines.spark.jars import delta_jars
from retention.engines.spark.java import launch_environment

ROOT = Path(__file__).parents[2]
LOG4J = ROOT / "retention" / "engines" / "spark" / "log4j2.properties"
PATIENCE_S = 120.0


@contextmanager
def connect_server(log: Path) -> Iterator[str]:
    """Run a server during the block; yields its address.

    Args:
        log: the file for its output.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | launch_environment() | {"PYTHONPATH": str(ROOT)}
    with log.open("wb") as said:
        process = subprocess.Popen(
            _command(environment["SPARK_HOME"], port), env=environment, stdout=said, stderr=said
        )
        try:
            _wait_for(port, process, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _command(home: str, port: int) -> list[str]:
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.progress.reportInterval": "100ms",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J.as_uri()} -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    return [
        *(f"{home}/bin/spark-submit", "--master", "local[2,4]", "--driver-memory", "1g"),
        *("--jars", ",".join(map(str, delta_jars()))),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"no server came up: {log.read_text(encoding='utf-8')}")
