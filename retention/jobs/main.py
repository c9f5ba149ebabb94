"""The command `retention-job`: any of the jobs, by its name."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

JOBS = (
    "retain",
    "plan",
    "compact",
    "reclaim",
    "fold",
    "ingest",
    "mirror",
    "doctor",
    "verify",
    "sync",
)
"""The names of the jobs; each is a module of this package with a function `main`."""


def main() -> int:
    """Run the job named by the first argument, with the other arguments.

    Returns:
        Its exit code.
    """
    parser = argparse.ArgumentParser("retention-job", description="Run a job for schedulers.")
    parser.add_argument("job", choices=JOBS, help="retention-job JOB --help: its arguments")
    job = parser.parse_args(sys.argv[1:2]).job
    sys.argv = [job, *sys.argv[2:]]
    code: int = import_module(f"retention.jobs.{job}").main()
    return code
