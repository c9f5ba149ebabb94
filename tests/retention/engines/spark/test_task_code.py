"""Detection of a worker's code, and the refusal to run with other code than the driver's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retention.engines.spark import task_code
from retention.engines.spark.package_zip import pack_zip
from retention.engines.spark.task_code import OtherCodeError, code_digest

_ASKED = "import {0} as asked; print(asked.code_digest())"


def test_a_zip_of_the_package_has_its_digest(tmp_path: Path) -> None:
    pack_zip(tmp_path / "package.zip")
    asked = subprocess.run(
        [sys.executable, "-c", f"{_ASKED.format(task_code.__name__)}; print(asked.__file__)"],
        cwd=tmp_path,
        env={"PATH": os.defpath, "PYTHONPATH": str(tmp_path / "package.zip")},
        capture_output=True,
        text=True,
        check=True,
    )
    digest, file = asked.stdout.splitlines()
    assert file.startswith(str(tmp_path / "package.zip"))
    assert digest == code_digest()


def test_a_function_runs_with_the_driver_s_code_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = task_code._only_with(code_digest(), lambda batches: batches)
    assert list(sent(iter([]))) == []
    monkeypatch.setattr(task_code, "code_digest", lambda: "of last month")
    with pytest.raises(OtherCodeError, match=r"retention on \S+$"):
        next(sent(iter([])))
