"""Curves of cost: each kind of work is done at a small size."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.curves import CURVES, measured, row
from benchmarks.half_hour import SHORT
from tests.support.shares import THOROUGH

PACKAGES = ("", ".tables")
SIZES = {"messages": 2_400, "files": 8, "MiB": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("name", CURVES if THOROUGH else ["first plan"])
def test_each_kind_of_work_is_measured(name: str, tmp_path: Path) -> None:
    curve = CURVES[name]
    seconds, peak = measured(curve, SIZES.get(curve.unit, 3), tmp_path, runs=1)
    assert seconds > 0
    assert peak > 0


def test_a_row_has_the_growth_from_size_to_size() -> None:
    told = row("verify", [3, 30, 300], [(0.1, 200), (0.4, 210), (2.0, 250)])
    assert (
        told == "| `verify` | files: 3, 30, 300 | 0.100, 0.400, 2.000 | 4.0, 5.0 | 200, 210, 250 |"
    )


@pytest.mark.parametrize("name", SHORT)
def test_each_benchmark_of_half_an_hour_takes_its_arguments(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"benchmarks{name}" + (".__main__" if name in PACKAGES else "")
    words = shlex.split(SHORT[name])
    monkeypatch.setattr("sys.argv", [module, *words, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(module).main()
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and f"{word} " not in told] == []
