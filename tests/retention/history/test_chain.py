"""The chain of a run history: a rewritten, removed or inserted record is noticed, and an erasure breaks no link."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention.history.chain import Chain, committed, counter_of, walk
from retention.history.kinds import Requested
from retention.history.record import ABANDONED, RecordedRequest
from retention.history.runs import History
from retention.rules.requests import Purge
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from tests.support.run_records import run_record

RUNS = [f"20250{month}01T000000.000000000Z-00000{month}" for month in range(1, 7)]
Damage = Callable[[Path], None]


def chained(history: History, run: str, counter: int, **fields: Any) -> int:
    """Record a run as a transaction does; return the table's new counter."""
    intent = committed(history.chained(run_record(run, **fields), counter))
    link = history.begin(intent)
    if intent.status == ABANDONED:
        history.finish(intent)
        return counter
    history.finish(intent.ended(7))
    return counter_of(link)


def walked(history: History, counter: int) -> Chain:
    return walk(list(history.stored()), history.forgotten(), counter)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path))


@pytest.fixture
def counter(history: History) -> int:
    """Six runs: the fourth was abandoned, the third had a reason."""
    counter = 0
    for number, run in enumerate(RUNS):
        fields = {"status": ABANDONED} if number == 3 else {}
        counter = chained(history, run, counter, removed_messages=number, **fields)
    return counter


def test_a_chain_that_holds_has_a_head_and_no_findings(history: History, counter: int) -> None:
    chain = walked(history, counter)
    assert (chain.findings, chain.chained, chain.unchained) == ((), 5, ())
    assert chain.head in chain.heads
    assert len(chain.heads) == len(RUNS)


def rewritten(name: str, **fields: Any) -> Damage:
    """A forger's change of a record, with a checksum that is right."""

    def damage(place: Path) -> None:
        record = verified(parse_json((place / name).read_bytes()))
        text = json.dumps(with_checksum({**record, **fields}))
        (place / name).write_text(text, encoding="utf-8")

    return damage


def removed(*names: str) -> Damage:
    def damage(place: Path) -> None:
        for name in names:
            (place / name).unlink()

    return damage


def both(*damages: Damage) -> Damage:
    def damage(place: Path) -> None:
        for each in damages:
            each(place)

    return damage


def inserted(place: Path) -> None:
    history = History(str(place))
    history.finish(run_record(RUNS[2].replace("01T", "02T"), status="done", removed_messages=9))


def begun(number: int) -> str:
    return f"{RUNS[number]}.begun.json"


def done(number: int) -> str:
    return f"{RUNS[number]}.done.json"


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (rewritten(done(1), removed_messages=99), "differ in removed_messages"),
        (rewritten(done(1), next_seq={"0": 99}), f"run {RUNS[2]}: a record from run {RUNS[1]}"),
        (rewritten(begun(1), removed_messages=99), "is not the one that was committed"),
        (
            both(rewritten(begun(1), removed_messages=99), rewritten(done(1), removed_messages=99)),
            "is not the one that was committed",
        ),
        (rewritten(done(3), status="done"), f"run {RUNS[4]}: a record from run {RUNS[2]}"),
        (rewritten(begun(5), as_of_ns=9), "is not the one that was committed"),
        (removed(begun(2)), f"run {RUNS[2]}: the record of its intent was removed"),
        (removed(begun(2), done(2)), f"run {RUNS[4]}: the records of run {RUNS[2]}"),
        (removed(begun(3), done(3)), f"run {RUNS[4]}: a record from run {RUNS[2]}"),
        (removed(begun(5), done(5)), "one of both was put back, or a record was removed"),
        (removed(*(name(at) for at in range(6) for name in (begun, done))), "no run is recorded"),
        (inserted, f"run {RUNS[4]}: a record from run {RUNS[2]}"),
    ],
)
def test_damage_is_found(
    history: History, counter: int, tmp_path: Path, damage: Damage, finding: str
) -> None:
    damage(tmp_path)
    assert any(finding in each for each in walked(history, counter).findings)


def test_a_forger_who_links_all_later_runs_again_contradicts_the_table(
    history: History, counter: int, tmp_path: Path
) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    forged = 0
    for number, run in enumerate(RUNS):
        forged = chained(history, run, forged, removed_messages=number + 1)
    assert walked(history, forged).findings == ()
    assert len(walked(history, counter).findings) == 1


def test_an_earlier_head_is_known_as_long_as_nothing_before_it_was_rewritten(
    history: History, tmp_path: Path
) -> None:
    first = chained(history, RUNS[0], 0)
    reported = walked(history, first).head
    second = chained(history, RUNS[1], first)
    assert reported in walked(history, second).heads
    rewritten(done(0), seconds=1.5)(tmp_path)
    assert reported not in walked(history, second).heads


def test_erasing_a_value_and_its_salt_breaks_no_link(history: History, tmp_path: Path) -> None:
    request = RecordedRequest.of(Purge(subject="users.zoe"))
    record = Requested(run=RUNS[0], kind="purge", as_of_ns=1, request=request, reason="by Ada")
    intent = committed(history.chained(record, 0))
    link = counter_of(history.begin(intent))
    history.finish(intent.ended(1))
    last = chained(history, RUNS[1], link)
    assert walked(history, last).findings == ()

    rewritten(done(0), reason="by Bob")(tmp_path)
    assert walked(history, last).findings == (
        f"run {RUNS[0]}: its reason is not the one that was recorded",
    )
    for name in (begun(0), done(0)):
        erased = verified(parse_json((tmp_path / name).read_bytes()))
        for field in ("request", "reason", "salts"):
            del erased[field]
        (tmp_path / name).write_text(json.dumps(with_checksum(erased)), encoding="utf-8")
        assert "zoe" not in (tmp_path / name).read_text(encoding="utf-8").lower()
    assert walked(history, last).findings == ()


@settings(deadline=None)
@given(st.sets(st.sampled_from(RUNS[:5])), st.sets(st.sampled_from(RUNS[:5])))
def test_forgetting_runs_leaves_the_chain_of_the_others(
    tmp_path_factory: pytest.TempPathFactory, first: set[str], then: set[str]
) -> None:
    history = History(str(tmp_path_factory.mktemp("runs")))
    counter = 0
    for number, run in enumerate(RUNS):
        fields = {"status": ABANDONED} if number == 3 else {}
        counter = chained(history, run, counter, **fields)
    head = walked(history, counter).head
    history.forget(sorted(first))
    history.forget(sorted(then - first))
    chain = walked(history, counter)
    assert (chain.findings, chain.head) == ((), head)
    last = "20250801T000000.000000000Z-000008"
    counter = chained(history, last, counter)
    assert walked(history, counter).findings == ()


@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_a_killed_forgetting_is_no_contradiction(
    history: History, counter: int, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    """The intent of a run is deleted, its outcome is not yet."""
    head, deletions = walked(history, counter).head, iter(range(1, 9))
    delete = files.delete

    def killed(locations: Iterable[str]) -> None:
        places = list(locations)
        if next(deletions) == killed_at:
            delete(places[:1])
            raise ZeroDivisionError
        delete(places)

    monkeypatch.setattr(files, "delete", killed)
    with pytest.raises(ZeroDivisionError):
        history.forget(RUNS[:4])
    chain = walked(history, counter)
    assert (chain.findings, chain.head) == ((), head)
    history.forget([run for run in RUNS[:4] if history.done(run) is not None])
    chain = walked(history, counter)
    assert (chain.findings, chain.head) == ((), head)


def test_the_checkpoint_does_not_grow_with_the_runs_before_the_oldest_record(
    history: History, counter: int
) -> None:
    history.forget(RUNS[:5])
    assert [outcome.run for outcome in history.forgotten()] == [RUNS[4]]
    assert walked(history, counter).findings == ()


def test_runs_of_earlier_releases_are_named_as_unchained(history: History) -> None:
    history.begin(run_record(RUNS[0]))
    history.finish(run_record(RUNS[0], status="done"))
    counter = chained(history, RUNS[1], 0)
    chain = walked(history, counter)
    assert (chain.findings, chain.unchained) == ((), (RUNS[0],))


def test_a_run_that_committed_without_an_outcome_is_no_contradiction(history: History) -> None:
    first = chained(history, RUNS[0], 0)
    intent = committed(history.chained(run_record(RUNS[1]), first))
    counter = counter_of(history.begin(intent))
    assert walked(history, counter).findings == ()
    assert walked(history, first).findings == ()


def test_a_table_that_was_put_back_is_noticed(history: History) -> None:
    first = chained(history, RUNS[0], 0)
    chained(history, RUNS[1], first)
    (finding,) = walked(history, first).findings
    assert finding.startswith(f"the table names run {RUNS[0]} as its last")
    counter = chained(history, RUNS[2], 0)
    (finding,) = walked(history, counter).findings
    assert "put back to a state before that run" in finding
