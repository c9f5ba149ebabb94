"""The law of legal holds: a pass removes what it removes without them, but for the held messages."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.api.warehouse import Warehouse
from retention.core.subjects import matches
from retention.core.units import SECOND
from tests.support.laws import law_on_disk
from tests.support.sandboxes import NOW, opened

SUBJECTS = ("a.x", "a.y", "b.x", "b.y.z")
MOST = 40
limits = st.fixed_dictionaries(
    {},
    optional={
        "max_msgs": st.integers(1, MOST),
        "max_age": st.integers(1, MOST).map("{}s".format),
        "max_msgs_per_subject": st.integers(1, 8),
        "max_bytes": st.integers(1, 2_000),
    },
)
ranges = st.lists(st.tuples(*[st.integers(1, MOST)] * 2).map(sorted), min_size=1, max_size=4)
instants = st.integers(-MOST - 1, 1).map(lambda seconds: NOW + seconds * SECOND)


def _has_length(hold: dict[str, Any]) -> bool:
    return bool(hold.get("from_time", 0) < hold.get("to_time", NOW * 2))


fields: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"reason": st.just("case 41")},
    optional={
        "subject": st.sampled_from(["a.>", "*.x", "b.y.z", ">", "c.>"]),
        "ranges": ranges,
        "from_time": instants,
        "to_time": instants,
    },
)
holds = fields.filter(_has_length)
messages = st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=MOST)


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@law_on_disk
@given(messages, limits, st.lists(holds, max_size=3), st.sampled_from(["5s", "1d"]))
def test_held_messages_stay_and_nothing_else_changes(
    format_: str,
    subjects: list[str],
    given_limits: dict[str, Any],
    given_holds: list[dict[str, Any]],
    span: str,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, "with")
        folder.mkdir()
        settings = {
            "name": "ORDERS",
            "subjects": ["a.>", "b.>"],
            "segment_span": span,
            **given_limits,
        }
        made = warehouse(folder, settings, format_)
        rows = [
            {"subject": subject, "data": "x", "ts_ns": NOW + (at - len(subjects)) * SECOND}
            for at, subject in enumerate(subjects)
        ]
        made.new_stream("ORDERS").publish(rows[:-1])
        made.new_stream("ORDERS").publish(rows[-1:])
        without = Path(directory, "without")
        shutil.copytree(folder, without)
        kept = after_a_pass(warehouse(without, settings, format_))
        for hold in given_holds:
            made.hold("ORDERS", **hold)
        held = {
            seq
            for seq, row in enumerate(rows, 1)
            if any(covers(hold, seq, row) for hold in given_holds)
        }
        assert after_a_pass(made) == kept | held


def warehouse(folder: Path, settings: dict[str, Any], format_: str) -> Warehouse:
    made = opened(folder, settings, format=format_)
    made.engine = "local"
    return made


def after_a_pass(made: Warehouse) -> set[int]:
    """The sequences that a pass leaves."""
    [outcome] = made.apply(["ORDERS"])
    assert outcome.error is None
    return {seq for table in made.stream("ORDERS").messages() for seq in table["seq"].to_pylist()}


def covers(hold: dict[str, Any], seq: int, row: dict[str, Any]) -> bool:
    """Whether a legal hold covers a message, from its fields alone."""
    return (
        matches(hold.get("subject", ">"), row["subject"])
        and any(first <= seq <= last for first, last in hold.get("ranges", [(1, MOST)]))
        and hold.get("from_time", 0) <= row["ts_ns"] < hold.get("to_time", NOW * 2)
    )
