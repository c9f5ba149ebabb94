"""Records of runs remain readable for all releases; records of a newer release only block removals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.errors import RefusedError
from retention.history import kinds
from retention.history.kinds import NewerRun, record_of
from retention.history.record import FORMAT, RecordedRequest, RunRecord
from retention.history.runs import History
from retention.rules.requests import Delete, Drop, Purge, Request
from retention.storage.checksum import with_checksum
from tests.support.run_records import counted_reads, run_record

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "fixtures/run-records.json").read_text(encoding="utf-8")
)
KINDS = sorted({*kinds._SHAPES.values(), *kinds._REPAIRS.values()}, key=lambda kind: kind.__name__)
HOLD = {"run": "b", "kind": "hold", "status": "done", "as_of_ns": 7, "until_ns": 9}


def stored(history: History, fields: dict[str, Any]) -> None:
    """Write a record like another release."""
    suffix = "begun" if fields["status"] == "begun" else "done"
    place = Path(history.directory, f"{fields['run']}.{suffix}.json")
    place.write_text(json.dumps(with_checksum(fields)))


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path))


@pytest.mark.parametrize(
    "golden",
    GOLDEN,
    ids=[f"{one['type']}, {one['record']['status']}, {one['era'][:17]}" for one in GOLDEN],
)
def test_a_record_of_every_kind_and_release_is_read_and_written_as_it_was(
    golden: dict[str, Any],
) -> None:
    record = record_of(golden["record"])
    assert type(record) is getattr(kinds, golden["type"])
    written = {name: value for name, value in record.as_stored().items() if name != "format"}
    assert written == golden["record"]
    assert list(written) == sorted(golden["record"])


def test_the_golden_records_have_every_kind() -> None:
    assert {kind.__name__ for kind in KINDS} == {golden["type"] for golden in GOLDEN}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_record_that_is_made_here_is_read_as_one_of_its_kind(kind: type[RunRecord]) -> None:
    more = {"kind": "purge"} if kind is kinds.Requested else {}
    more |= {"erasure": "c"} if kind in (kinds.Erased, kinds.TableErased) else {}
    more |= {"undoes": "b"} if kind in (kinds.Undone, kinds.TableUndone) else {}
    made = kind.model_validate({"run": "a", "as_of_ns": 5, **more})
    read = record_of(json.loads(json.dumps(made.as_json())))
    assert type(read) is kind
    assert read.as_json() == made.as_json()


def test_what_a_newer_release_added_to_a_record_is_kept(history: History) -> None:
    fields = {"run": "a", "kind": "compact", "status": "begun", "as_of_ns": 5, "vectors": [1, 2]}
    fields |= {"until": None}
    stored(history, fields | {"basis": {"table_id": "t", "version": 3, "branch": "main"}})
    [intent] = history.interrupted()
    history.finish(intent.updated(status="abandoned"))
    done = json.loads(Path(history.done_location("a")).read_text())
    assert (done["vectors"], done["basis"]["branch"]) == ([1, 2], "main")
    assert done["until"] is None


@pytest.mark.parametrize("request_", [Purge("a.>", keep=3), Delete((3, 17), erase=True), Drop()])
def test_a_request_is_read_as_it_was_carried_out(request_: Request) -> None:
    said = json.loads(json.dumps(RecordedRequest.of(request_).model_dump(exclude_unset=True)))
    assert RecordedRequest.model_validate(said | {"of_a_newer": 1}).read() == request_


@pytest.mark.parametrize(
    "unknown",
    [
        HOLD,
        HOLD | {"status": "begun"},
        {**HOLD, "kind": "apply", "status": "partial"},
        {**HOLD, "kind": "repair", "repair": "gravity"},
    ],
)
def test_a_run_of_a_newer_release_is_read_and_stops_removals(
    history: History, unknown: dict[str, Any]
) -> None:
    stored(history, unknown)
    history.finish(run_record("c", status="done"))
    rewritten = json.loads(Path(history.done_location("c")).read_text())
    # A release before this rule continued anyway.
    Path(history.done_location("c")).write_text(
        json.dumps({name: rewritten[name] for name in rewritten if name not in {"check", "format"}})
    )
    with pytest.raises(RefusedError, match=r"a newer release .* does not know"):
        history.refuse_newer()
    read = history.begun("b") if unknown["status"] == "begun" else history.done("b")
    assert isinstance(read, NewerRun)
    assert read.as_json() == unknown
    assert history.last_as_of_ns() == 0


def test_a_record_vouches_for_those_before_it(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass does not reread a year of passes."""
    for run in "acd":
        history.finish(run_record(run, status="done"))
    read = counted_reads(monkeypatch)
    history.refuse_newer()
    assert read == ["d.done.json"]


def test_a_record_of_a_release_that_knows_more_vouches_for_nothing(history: History) -> None:
    stored(history, HOLD)
    stored(history, {"run": "c", "kind": "apply", "status": "done", "as_of_ns": 8, "format": 9})
    with pytest.raises(RefusedError, match="hold"):
        history.refuse_newer()
    assert FORMAT < 9
