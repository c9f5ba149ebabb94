from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retention.consumers.state import new_state
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.support.inotify import opens_below
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with
from tests.support.trees import scramble

SEGMENTS, EACH, NOW = 14, 50, START + 2_000 * SECOND
CUT = 9
"""The exact number of removed segments."""

AGE = NOW - (START + CUT * EACH * SECOND)
LIMITS: dict[str, dict[str, Any]] = {
    "max_msgs": {"max_msgs": (SEGMENTS - CUT) * EACH},
    "max_age": {"max_age": AGE},
    "whole_segments, cut inside the next": {
        "max_msgs": (SEGMENTS - CUT) * EACH - EACH // 2,
        "whole_segments": True,
        "max_age": AGE,
    },
    "whole_segments, everything spent": {"max_age": "1s", "whole_segments": True},
}
DROPPED = dict.fromkeys(LIMITS, CUT) | {"whole_segments, everything spent": SEGMENTS - 1}


def data_files(folder: Path) -> list[Path]:
    return data_files_of(folder, "ORDERS")


def data_files_of(folder: Path, stream: str) -> list[Path]:
    return sorted((folder / "streams" / stream / "messages").rglob("segment=*/*.parquet"))


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@pytest.mark.parametrize("case", LIMITS)
def test_dropping_whole_segments_opens_no_data_file(
    tmp_path: Path, format_: str, case: str
) -> None:
    warehouse = warehouse_with(tmp_path, format_, NOW, **LIMITS[case])
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, even_segments(SEGMENTS, EACH))
    random = np.random.default_rng(7)
    files = data_files(tmp_path)
    assert len(files) == SEGMENTS
    for file in files:
        scramble(file, random)
    dropped = DROPPED[case]
    with opens_below(tmp_path / "streams") as opened:
        planned = stream.plan()
        [outcome] = warehouse.apply()
        state = stream.state()
    assert outcome.value is not None, outcome.sentence
    assert [path for path in opened if "/segment=" in path and "/subjects/" not in path] == []
    assert any(path.endswith(".json") for path in opened)  # the watch sees opened files
    assert planned.plan.removed_messages == outcome.value.removed_messages == dropped * EACH
    assert outcome.value.segments == {
        "dropped": dropped,
        "rewritten": 0,
        "kept": SEGMENTS - dropped,
    }
    assert (outcome.value.files_read, outcome.value.bytes_read) == (0, 0)
    assert (state.first_seq, state.last_seq) == (dropped * EACH + 1, SEGMENTS * EACH)
    assert state.messages == (SEGMENTS - dropped) * EACH
    assert len(files_left(tmp_path, format_)) == SEGMENTS - dropped


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@pytest.mark.parametrize("filters", [[], ["s.0", "s.*"], ["s.0", "s.1", "s.2"]])
def test_releasing_what_everybody_has_settled_opens_no_data_file(
    tmp_path: Path, format_: str, filters: list[str]
) -> None:
    warehouse = warehouse_with(tmp_path, format_, NOW, retention="interest")
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, even_segments(SEGMENTS, EACH))
    for number, at in enumerate((CUT * EACH, (CUT + 2) * EACH)):
        settled = new_state(at + 1)
        config = {"filter_subjects": filters, "ack_policy": "explicit"}
        record = ConsumerRecord(f"c{number}", config, settled, revision=1)
        change = partial(lambda record, _: record, record)
        ConsumerTable(stream.opened.root).update(record.consumer, change)
    random = np.random.default_rng(7)
    for file in data_files(tmp_path):
        scramble(file, random)
    with opens_below(tmp_path / "streams") as opened:
        [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    assert [path for path in opened if "/segment=" in path and "/subjects/" not in path] == []
    assert outcome.value.by_rule == {"interest": CUT * EACH}
    assert (outcome.value.files_read, outcome.value.bytes_read) == (0, 0)
    assert len(files_left(tmp_path, format_)) == SEGMENTS - CUT


def files_left(folder: Path, format_: str) -> list[Path]:
    """The files in the view of a plain reader of the directory or of the Delta log."""
    if format_ == "parquet":
        return data_files(folder)
    from deltalake import DeltaTable

    return [Path(uri) for uri in DeltaTable(folder / "streams/ORDERS/messages").file_uris()]


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_the_watch_sees_a_data_file_that_is_opened(tmp_path: Path, format_: str) -> None:
    warehouse = warehouse_with(tmp_path, format_, NOW, max_msgs=(SEGMENTS - CUT) * EACH - 1)
    lay(warehouse.stream("ORDERS").opened, even_segments(SEGMENTS, EACH))
    with opens_below(tmp_path / "streams") as opened:
        warehouse.stream("ORDERS").plan()
    assert {path for path in opened if "/messages/partition=" in path} == {
        str(data_files_by_base(tmp_path)[CUT])
    }


def data_files_by_base(folder: Path) -> list[Path]:
    return sorted(data_files(folder), key=lambda file: int(file.parent.name.partition("=")[2]))
