"""The public Python API: its names, and its values as frames."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import retention
from retention.views.frames import frame_of
from tests.support.sandboxes import NOW, ORDERS, lines, opened


def test_the_package_shows_its_public_names_and_has_them() -> None:
    assert dir(retention) == [
        "CompactionLimits",
        "Guards",
        "MessageRange",
        "Selection",
        "__version__",
        "errors",
        "open_warehouse",
        "register",
        "register_functions",
        "subject_key",
        "subject_token",
    ]
    assert all(getattr(retention, name) is not None for name in dir(retention))
    with pytest.raises(AttributeError, match=r"no attribute 'open'; it has .*open_warehouse"):
        _ = retention.open


def test_the_package_has_its_errors_without_an_import_of_their_own() -> None:
    code = "import retention; print(retention.errors.UsageError.exit_code)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


def test_objects_show_what_is_public(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    stream = warehouse.stream("ORDERS")
    for public, wanted in (
        (warehouse, {"stream", "plan", "apply", "reclaim", "history", "location"}),
        (stream, {"publish", "append", "plan", "state", "repair_wrong_clock", "consumers"}),
        (stream.consumers, {"list", "add", "fold"}),
        (stream.plan(), {"apply", "explain", "to_pandas", "plan"}),
    ):
        names = set(dir(public))
        assert wanted <= names
        assert not {name for name in names if name.startswith("_")}
        assert "opened" not in names
        assert all(hasattr(public, name) for name in names)


def test_history_is_a_list_that_becomes_a_frame(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    stream = warehouse.stream("ORDERS")
    assert stream.history() == []
    assert stream.history().to_pandas().empty
    stream.publish(lines(240))
    stream.plan().apply()
    stream.purge(keep=1).apply()
    for history in (stream.history(), warehouse.history(["ORDERS"])):
        assert isinstance(history, list)
        frame = history.to_pandas()
        assert list(frame["run"]) == [record["run"] for record in history]
        assert frame["removed_messages"].tolist() == [166, 73]
        assert frame["by_rule.max_age"].isna().tolist() == [True, False]
        assert frame["as_of_ns"].dtype == "int64"
        assert set(frame["as_of_ns"]) == {NOW}


def test_a_state_becomes_a_row(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(240))
    state = stream.state()
    [row] = state.to_pandas().to_dict("records")
    assert row["messages"] == state.messages == 240
    assert row["last_ts_ns"] == state.last_ts_ns
    assert state.lag is not None
    assert row["lag.messages"] == state.lag.messages > 0


def test_numbers_of_64_bits_stay_exact_where_some_are_missing() -> None:
    frame = frame_of([{"n": 2**62 + 1, "big": 2**70}, {"n": None, "x": {"y": [1]}}])
    assert frame["n"][0] == 2**62 + 1
    assert frame["n"].isna().tolist() == [False, True]
    assert frame["big"][0] == 2**70
    assert frame["x.y"].tolist() == [None, [1]]
