"""Ending a driver process with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_GATEWAY = "PYSPARK_GATEWAY_PORT"


def end_with_spark_submit() -> None:
    """Under `spark-submit`, have this process stopped when the JVM that started it dies.

    A killed JVM leaves its Python driver running, which would go on without Spark behind it. Linux sends a signal to
    the children of a dead process if they ask for it; elsewhere nothing does, and nothing happens here.
    """
    if _GATEWAY not in os.environ or not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have died before the request.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
