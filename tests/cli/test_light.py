"""Commands without a table load no table library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sandboxes import ORDERS, configured, lines, opened

RUN = """
import os
import sys
from retention.cli.main import main
sys.argv = ["retention", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    heavy = os.environ.get("HEAVY", "pyspark py4j pyarrow deltalake pandas numpy").split()
    print(end.code, *(name for name in heavy if name in sys.modules), file=sys.stderr)
"""


def loaded(folder: Path, *arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    code, *heavy = done.stderr.splitlines()[-1].split()
    assert code in ("0", "None"), done.stderr
    return heavy


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"]])
def test_it_loads_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    configured(tmp_path, ORDERS)
    assert loaded(tmp_path, *arguments) == []


def test_completing_a_stream_loads_nothing_heavy(tmp_path: Path) -> None:
    configured(tmp_path, ORDERS)
    asked = {
        "_RETENTION_COMPLETE": "complete_bash",
        "COMP_WORDS": "retention plan O",
        "COMP_CWORD": "2",
    }
    assert loaded(tmp_path, **asked) == []


def test_looking_at_a_stream_loads_neither_pandas_nor_spark(tmp_path: Path) -> None:
    opened(tmp_path, ORDERS).stream("ORDERS").publish(lines(48))
    assert loaded(tmp_path, "validate") == []
    for command in ("plan", "state"):
        assert set(loaded(tmp_path, command)) == {"numpy", "pyarrow"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_no_models(tmp_path: Path, arguments: list[str]) -> None:
    """Models cost more than everything else in help."""
    configured(tmp_path, ORDERS)
    assert loaded(tmp_path, *arguments, HEAVY="pydantic ruamel") == []
