"""This engine on a standalone Spark cluster on this machine: two executors, each a process with one core."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from benchmarks.contenders.ours_on_spark import OnSpark
from retention.engines.spark.jars import delta_jars
from retention.engines.spark.java import launch_environment

_ROOT = Path(__file__).parents[2]
_CORES = 2
_MEMORY_MIB = 1_536
_SETTINGS = {
    "spark.jars": ",".join(map(str, delta_jars())),
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": f"{_MEMORY_MIB}m",
    "spark.executorEnv.PYTHONPATH": str(_ROOT),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


class OnCluster(OnSpark):
    """Executors receive files and ranges, and return statistics; the driver's JVM runs no task."""

    def open(self) -> None:
        os.environ.update(launch_environment())
        os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
        # Spark's own test mode with master, workers and executors in processes; memory in MiB.
        builder = SparkSession.builder.master(f"local-cluster[{_CORES},1,{_MEMORY_MIB}]")
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        self._stack.callback(builder.appName("benchmarks").getOrCreate().stop)
