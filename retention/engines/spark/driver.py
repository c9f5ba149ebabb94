"""The end of a driver process together with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_GATEWAY = "PYSPARK_GATEWAY_PORT"


def end_with_spark_submit() -> None:
    """Under `spark-submit`, stop this process when the JVM that started it dies.

    A killed JVM leaves its Python driver running without Spark. Linux sends a signal to the children of a dead process
    if they request it; on other systems, this does nothing.
    """
    if _GATEWAY not in os.environ or not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The JVM may have died before the request.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
