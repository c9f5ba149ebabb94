"""Jobs in this process, because a new process costs over a second; one test per job starts it like a scheduler."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from retention.jobs import running


@dataclass(frozen=True)
class Ended:
    """The result of a job; names as in `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def run_job(name: str, folder: Path, *arguments: str) -> Ended:
    """Run `python -m retention.jobs.<name>` with these arguments in this process, in a folder."""
    module = import_module(f"retention.jobs.{name}")
    printed, complained = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(printed),
        redirect_stderr(complained),
    ):
        patch.chdir(folder)
        patch.setattr(sys, "argv", [name, *arguments])
        for of_the_process in ("end_with_spark_submit", "spare_pandas"):
            patch.setattr(running, of_the_process, lambda: None)
        try:
            code = module.main()
        except SystemExit as ended:  # argparse
            code = ended.code
    return Ended(code, printed.getvalue(), complained.getvalue())
