"""Records of erasures: names of files tell which are unfinished, and the key goes before the needles."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from retention.erasure.ledger import ErasureEntry
from retention.erasure.needle_file import NeedleFile, new_key
from retention.erasure.needles import needles_of_rows
from retention.erasure.record import ErasureRecord, ErasureRequested, Erasures
from retention.errors import DamagedError
from retention.storage.crash_points import Step, watched_by

EVE = "customer.eve-4f0c2b7d9a31"
DIGEST = "0" * 64


class Killed(BaseException):
    """The end of a process."""


def record_of(erasure: str) -> ErasureRecord:
    return ErasureRecord(
        id=erasure,
        at_ns=7,
        initiator={},
        below=9,
        subjects=[DIGEST],
        request=DIGEST,
        reason=DIGEST,
        named_subjects=1,
        named_seqs=0,
        key=new_key().hex(),
    )


def begun(erasures: Erasures, erasure: str) -> ErasureRecord:
    """An erasure with a record and needles."""
    record = record_of(erasure)
    needles = needles_of_rows([pa.table({"subject": [EVE]})])
    erasures.write_needles(record, NeedleFile({"subjects": [EVE]}, "request 7", needles))
    erasures.write(record)
    return record


def test_names_tell_what_is_unfinished(tmp_path: Path) -> None:
    erasures = Erasures(str(tmp_path), "ORDERS")
    assert erasures.unfinished_ids() == []
    for erasure in ("c", "b", "a"):
        begun(erasures, erasure)
    assert erasures.unfinished_ids() == ["a", "b", "c"]
    erasures.write_report("b", {})
    assert erasures.unfinished_ids() == ["a", "b", "c"]
    erasures.close(erasures.read("b"))
    assert erasures.unfinished_ids() == ["a", "c"]


def test_no_record_of_a_finished_erasure_is_read(tmp_path: Path) -> None:
    erasures = Erasures(str(tmp_path), "ORDERS")
    for erasure in ("a", "b"):
        begun(erasures, erasure)
    erasures.write_report("a", {})
    erasures.close(erasures.read("a"))
    (tmp_path / "_retention" / "erasures" / "a.json").write_text("damaged")
    assert [record.id for record in erasures.unfinished()] == ["b"]
    with pytest.raises(DamagedError):
        erasures.all()


@pytest.mark.parametrize(
    ("step", "has_needles"),
    [
        (Step.ERASURE_RECORDED, True),
        (Step.NEEDLES_OVERWRITTEN, True),
        (Step.NEEDLES_DELETED, False),
    ],
)
def test_no_kill_leaves_needles_with_their_key_nor_needles_that_nobody_finds(
    tmp_path: Path, step: Step, has_needles: bool
) -> None:
    erasures = Erasures(str(tmp_path), "ORDERS")
    record = begun(erasures, "a")
    erasures.write_report("a", {})

    def kill(reached: Step) -> None:
        if reached is step:
            raise Killed

    with pytest.raises(Killed), watched_by(kill):
        erasures.close(record)
    assert erasures.read("a").key is None
    assert Path(erasures.needles("a")).exists() is has_needles
    assert erasures.unfinished_ids() == ["a"] * has_needles
    for each in erasures.unfinished():
        erasures.close(each)
    assert not Path(erasures.needles("a")).exists()
    assert erasures.unfinished_ids() == []


def test_an_entry_of_the_ledger_has_what_was_requested_and_nothing_else() -> None:
    record = record_of("a")
    entry = ErasureEntry(**record.requested(), messages_sha256=None)
    assert set(vars(entry)) == {*ErasureRequested.model_fields, "messages_sha256"}
    again = ErasureRecord(**entry.requested(), initiator={}, key=record.key)
    assert again == record
