"""Checked records: written records are read, a changed digit is refused, and older records are accepted unchecked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.errors import DamagedError
from retention.history.runs import History
from retention.storage.checksum import verified, with_checksum
from retention.stores.layout import Layout
from retention.stores.parquet.log import CommitEntry, ParquetLog
from tests.support.run_records import run_record

RECORD: dict[str, Any] = {
    "kind": "apply",
    "status": "done",
    "as_of_ns": 1_700_000_000_000_000_000,
    "by_rule": {"max_age": 3},
    "next_seq": {2: 5, 10: 6},
}


def test_what_was_written_is_read() -> None:
    said = json.loads(json.dumps(with_checksum(RECORD)))
    assert verified(said) == json.loads(json.dumps(RECORD))


def test_a_record_of_before_is_taken_as_it_is() -> None:
    assert verified({"a": 1}) == {"a": 1}


def _with_every_digit_changed(file: Path) -> list[bytes]:
    content = file.read_bytes()
    places = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
    return [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in places]


def test_no_digit_of_the_run_history_can_change_unseen(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.finish(run_record("run", **RECORD))
    assert history.done("run") is not None
    file = tmp_path / "run.done.json"
    for damaged in _with_every_digit_changed(file):
        file.write_bytes(damaged)
        with pytest.raises(DamagedError):
            history.done("run")


def test_no_digit_of_a_parquet_log_can_change_unseen(tmp_path: Path) -> None:
    log = ParquetLog(Layout(str(tmp_path), "ORDERS"))
    log.append(CommitEntry(0, 17, next_seq={0: 21}, open_base={0: 16}, table_id="made"))
    assert log.read().counters.next_seq == {0: 21}
    file = tmp_path / "_retention/log/00000000000000000000.json"
    for damaged in _with_every_digit_changed(file):
        file.write_bytes(damaged)
        with pytest.raises(DamagedError):
            log.read()
