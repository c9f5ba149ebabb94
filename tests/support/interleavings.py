"""Interleavings of two sides on one stream: one pauses at a named step while the other acts; allowed results."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from retention.api.warehouse import Warehouse, open_warehouse
from retention.consumers.state import new_state
from retention.core.counters import Counters
from retention.datafile.parquet import write_messages
from retention.engines import local
from retention.errors import CommitUnknownError, RetentionError
from retention.history.runs import history_of
from retention.ingest import turns
from retention.interest.edit import delete_consumer, edit_consumer
from retention.plan.planfile import load_plans, save_plans
from retention.schemas.messages import MESSAGES
from retention.storage.crash_points import Step, watched_by
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from retention.stores.delta import store as delta
from retention.stores.layout import Layout
from retention.stores.parquet import settle_files
from retention.stores.parquet import store as parquet
from tests.support.laying import (
    SECOND,
    START,
    File,
    Laid,
    even_segments,
    lay,
    rows_of,
    warehouse_with,
)
from tests.support.reclaiming import emptied, real_warehouse

NOW = START + 100 * SECOND
FIRST_AS_OF, AS_OF, LATER_AS_OF = (START + seconds * SECOND for seconds in (65, 75, 80))
STREAM = "ORDERS"
TAKING_OVER = "-after-taking-over"
UNFINISHED = " is unfinished, and `retention erase "
Act = Callable[[Path], None]
Prepare = Callable[[Path, str], None]


def written(folder: Path, format_: str, **more: Any) -> None:
    """A stream after one run, due for another; two files of one segment overlap; a plan is saved."""
    limits: dict[str, Any] = {
        "max_age": "60s",
        "max_msgs_per_subject": 9,
        "compact": {"min_files": 2},
        **more,
    }
    warehouse = warehouse_with(folder, format_, NOW, **limits)
    first, *rest = even_segments(4, 10)
    halves = [File(first.base, first.messages[at::2]) for at in (0, 1)]
    lay(warehouse.stream(STREAM).opened, [*halves, *rest])
    [outcome] = warehouse.apply(as_of=FIRST_AS_OF)
    assert outcome.value is not None
    assert outcome.value.removed_messages
    save_plans(str(folder / "plan.json"), [warehouse.stream(STREAM).plan(AS_OF).plan])


def scattered(folder: Path, format_: str) -> None:
    """The same, with three more files in the open segment."""
    written(folder, format_)
    for batch in range(3):
        publish(folder, "before", batch)


def archived(folder: Path, format_: str) -> None:
    """The same, with an archive of the removed messages."""
    written(folder, format_, archive="archive")


def dying(folder: Path, format_: str) -> None:
    """The last values of two subjects are due, and will be announced; both subjects are published again later."""
    warehouse_with(folder, format_, NOW, allow_msg_ttl=True, subject_delete_marker_ttl="1s")
    soon: list[dict[str, str]] = [{"Nats-TTL": "1s"}, {"Nats-TTL": "1s"}, {}, {"Nats-TTL": "1s"}]
    lines = [
        {"subject": f"s.{n % 3}", "data": "x", "ts_ns": START + n * SECOND, "headers": headers}
        for n, headers in enumerate(soon)
    ]
    stream = opened_at(folder).new_stream(STREAM)
    stream.publish([json.dumps(line).encode() for line in lines], "first", 1)


def reclaimable(folder: Path, format_: str) -> None:
    """A stream by the machine's clock, without a grace: after one run, due for another, and with files to merge."""
    emptied(folder, format_, max_msgs=25)
    real_warehouse(folder, format_, max_msgs=20, compact={"min_files": 2})
    for batch in range(3):
        publish(folder, "before", batch)


def empty(folder: Path, format_: str) -> None:
    """A stream that exists only in the configuration."""
    warehouse_with(folder, format_, NOW)


def heard(folder: Path, format_: str) -> None:
    """A stream with a consumer that has settled half of it."""
    warehouse = warehouse_with(folder, format_, NOW, retention="interest")
    opened = warehouse.stream(STREAM).opened
    lay(opened, even_segments(4, 10))
    record = ConsumerRecord("billing", {"ack_policy": "explicit"}, new_state(24), revision=1)
    ConsumerTable(opened.root).update("billing", lambda found: found or record)


def come_further(folder: Path) -> None:
    """The consumer settles more messages."""
    table = ConsumerTable(opened_at(folder).stream(STREAM).opened.root)
    table.update("billing", lambda found: replace(_there(found), state=new_state(36)))


def create_consumer(folder: Path) -> None:
    """A new consumer needs all stored messages."""
    record = ConsumerRecord(
        "late", {"ack_policy": "explicit"}, new_state(1), revision=1, counted=False
    )
    edit_consumer(opened_at(folder).stream(STREAM).opened, "late", lambda found: found or record)


def forget_consumer(folder: Path) -> None:
    """The only consumer is deleted, so nothing can be settled any more."""
    delete_consumer(opened_at(folder).stream(STREAM).opened, "billing")


def _there(found: ConsumerRecord | None) -> ConsumerRecord:
    assert found is not None
    return found


def opened_at(folder: Path) -> Warehouse:
    """The warehouse at `NOW`; without a grace by the machine's clock, because a grace ends by the storage's clock."""
    place = folder / "retention.yaml"
    if has_grace(folder):
        return open_warehouse(place, engine="local", clock=lambda: NOW)
    return open_warehouse(place, engine="local")


def has_grace(folder: Path) -> bool:
    """Whether removed files have a grace."""
    [stream] = json.loads((folder / "retention.yaml").read_text(encoding="utf-8"))["streams"]
    return bool(stream.get("grace") != "0s")


def publish(folder: Path, who: str = "mine", batch: int = 1) -> None:
    lines = [
        json.dumps({"subject": f"s.{n % 3}", "data": who, "ts_ns": START + (50 + n) * SECOND})
        for n in range(4)
    ]
    opened_at(folder).new_stream(STREAM).publish([line.encode() for line in lines], who, batch)


def apply(folder: Path, as_of: int = AS_OF) -> None:
    [outcome] = opened_at(folder).apply(as_of=as_of if has_grace(folder) else None)
    if outcome.error is not None:
        raise outcome.error


def apply_plan(folder: Path) -> None:
    [outcome] = opened_at(folder).apply_plans(load_plans(str(folder / "plan.json")))
    if outcome.error is not None:
        raise outcome.error


def undo(folder: Path) -> None:
    begun = (path.name for path in (folder / "runs" / STREAM).glob("*.begun.json"))
    opened_at(folder).undo(min(begun, default="none").removesuffix(".begun.json"))


def restore(folder: Path) -> None:
    """The removed messages are restored from the archive."""
    opened_at(folder).stream(STREAM).restore()


def read(folder: Path) -> None:
    list(opened_at(folder).new_stream(STREAM).messages())


def bring(folder: Path) -> None:
    """Another writer appends rows with sequences."""
    opened = opened_at(folder).stream(STREAM).opened
    snapshot = opened.store.snapshot()
    files, counters = snapshot.files, snapshot.counters
    highest = pc.max(files["max_seq"]).as_py() or 0
    seq = max(counters.next_seq.get(0, 1), highest + 1)
    base = counters.open_base.get(0, 1)
    rows = rows_of([Laid(seq + n, "theirs", START + (60 + n) * SECOND) for n in range(2)])
    layout = Layout(opened.root, STREAM)
    if opened.config.format == "parquet":
        write_messages(layout.live(f"partition=0/segment={base}/theirs-{seq}.parquet"), [rows])
        return
    for name, value in (
        ("segment", pa.scalar(base, pa.int64())),
        ("partition", pa.scalar(0, pa.int32())),
    ):
        rows = rows.add_column(0, name, pa.repeat(value, rows.num_rows))
    write_deltalake(layout.messages, rows.select(MESSAGES.names), mode="append")


def delete_a_row(folder: Path) -> None:
    """Another writer deletes a message in a file that a run rewrites."""
    _table(folder).delete("seq = 18")


def compact(folder: Path) -> None:
    """Another writer merges the files of each segment."""
    _table(folder).optimize.compact()


def merge(folder: Path) -> None:
    """The engine's own compaction."""
    [outcome] = opened_at(folder).compact([STREAM]).apply()
    if outcome.error is not None:
        raise outcome.error


def reclaim(folder: Path) -> None:
    """All dead files are deleted."""
    [outcome] = opened_at(folder).reclaim([STREAM]).apply()
    if outcome.error is not None:
        raise outcome.error


def place_hold(folder: Path) -> None:
    """A legal hold of messages that limits remove, and of others."""
    opened_at(folder).hold(STREAM, reason="case 41", from_seq=12, to_seq=25)


def release_hold(folder: Path) -> None:
    """The legal hold is released."""
    warehouse = opened_at(folder)
    held = [hold.id for hold in warehouse.holds()]
    warehouse.release_hold(min(held, default="none"), reason="closed")


def held(folder: Path, format_: str) -> None:
    """A stream as `written`, with a legal hold from before its saved plan."""
    written(folder, format_)
    place_hold(folder)
    save_plans(str(folder / "plan.json"), [opened_at(folder).stream(STREAM).plan(AS_OF).plan])


def erase(folder: Path) -> None:
    """Some messages are erased, live ones and removed ones."""
    opened_at(folder).stream(STREAM).erase(seqs=(3, 17, 22), reason="asked for").apply()


def erase_others(folder: Path) -> None:
    """Another erasure, of messages in the same files and in others, which no legal hold covers."""
    opened_at(folder).stream(STREAM).erase(seqs=(28, 36), reason="asked for").apply()


def verify(folder: Path) -> None:
    """The stream is verified."""
    assert opened_at(folder).stream(STREAM).verify().damages == ()


def purge(folder: Path) -> None:
    """All messages are removed on request."""
    opened_at(folder).stream(STREAM).purge().apply()


def delete(folder: Path) -> None:
    """Some messages are removed on request."""
    opened_at(folder).stream(STREAM).delete(*range(21, 25)).apply()


def vacuum(folder: Path) -> None:
    """Another program deletes the files removed from the table's log."""
    _table(folder).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def recreate(folder: Path, commits: int) -> None:
    """The stream is deleted, and recreated with other messages in several commits."""
    shutil.rmtree(folder / "streams" / STREAM, ignore_errors=True)
    for batch in range(commits):
        publish(folder, "anew", batch)


def without_leases(act: Act) -> Act:
    """The same act after a loss of the leases, as on an object store with a paused holder."""

    def acting(folder: Path) -> None:
        for place in (folder / "streams" / STREAM).glob("_retention/*.lease"):
            place.unlink()
        act(folder)

    return acting


def _table(folder: Path) -> DeltaTable:
    return DeltaTable(str(folder / "streams" / STREAM / "messages"))


_MET: tuple[Prepare, ...] = (written, archived, scattered, empty, dying, reclaimable)


@dataclass(frozen=True)
class Side:
    """The act of one side, and its possible formats."""

    act: Act
    formats: tuple[str, ...] = ("delta", "parquet")
    prepare: Prepare = written
    meets: tuple[Prepare, ...] = _MET


MINE: Mapping[str, Side] = {
    "apply": Side(apply),
    "apply-plan": Side(apply_plan),
    "marking-apply": Side(apply, prepare=dying),
    "undo": Side(undo),
    "restore": Side(restore, prepare=archived),
    "publish": Side(publish),
    "first-publish": Side(publish, prepare=empty),
    "release": Side(apply, prepare=heard),
    "new-consumer": Side(create_consumer, prepare=heard),
    "compact": Side(merge, prepare=scattered),
    "hold": Side(place_hold),
    "release-hold": Side(release_hold, prepare=held),
    "apply-under-hold": Side(apply, prepare=held),
    "apply-plan-under-hold": Side(apply_plan, prepare=held),
    "purge": Side(purge),
    "purge-under-hold": Side(purge, prepare=held),
    "delete": Side(delete),
    "erase": Side(erase),
    "erase-under-hold": Side(erase_others, prepare=held),
    "erase-reclaimable": Side(erase, prepare=reclaimable),
    "hold-reclaimable": Side(place_hold, prepare=reclaimable),
    "reclaim": Side(reclaim, prepare=reclaimable),
    "apply-reclaimable": Side(apply, prepare=reclaimable),
    "undo-reclaimable": Side(undo, prepare=reclaimable),
    "compact-reclaimable": Side(merge, prepare=reclaimable),
}
"""Acts that pause at each of their steps."""

THEIRS: Mapping[str, Side] = {
    "publish": Side(lambda folder: publish(folder, "theirs")),
    "publish-after-taking-over": Side(without_leases(lambda folder: publish(folder, "theirs"))),
    "apply": Side(lambda folder: apply(folder, LATER_AS_OF), meets=(*_MET, held)),
    "purge": Side(purge, meets=(written, archived, scattered, held)),
    "hold": Side(place_hold),
    "release-hold": Side(release_hold, meets=(held,)),
    "apply-after-taking-over": Side(without_leases(lambda folder: apply(folder, LATER_AS_OF))),
    "same-apply-after-taking-over": Side(without_leases(apply)),
    "undo-after-taking-over": Side(without_leases(undo)),
    "read": Side(read),
    "erase-after-taking-over": Side(
        without_leases(erase), meets=(written, archived, scattered, held, reclaimable)
    ),
    "other-erase-after-taking-over": Side(
        without_leases(erase_others), meets=(written, archived, scattered, held, reclaimable)
    ),
    "verify": Side(verify, meets=(written, archived, held, reclaimable)),
    "release": Side(apply, meets=(heard,)),
    "acks": Side(come_further, meets=(heard,)),
    "new-consumer": Side(create_consumer, meets=(heard,)),
    "deleted-consumer": Side(forget_consumer, meets=(heard,)),
    "foreign-append": Side(bring, meets=(written, scattered, reclaimable)),
    "foreign-delete": Side(delete_a_row, formats=("delta",), meets=(written, scattered)),
    "foreign-compaction": Side(compact, formats=("delta",), meets=(written, scattered)),
    "compact-after-taking-over": Side(
        without_leases(merge), meets=(written, archived, scattered, reclaimable)
    ),
    "reclaim-after-taking-over": Side(without_leases(reclaim), meets=(reclaimable,)),
    "vacuum": Side(vacuum, formats=("delta",), meets=(reclaimable,)),
    "recreation": Side(lambda folder: recreate(folder, 1), meets=(written, scattered, empty)),
    "recreation-to-the-same-version": Side(
        lambda folder: recreate(folder, 2), meets=(written, scattered, empty)
    ),
}
"""Acts that happen meanwhile."""


def duels(mine: str, format_: str) -> list[str]:
    """The acts possible on a format while one of `MINE` is paused; a takeover needs a previous holder."""
    lease = "publish" if "publish" in mine else "apply"
    return [
        name
        for name, side in THEIRS.items()
        if format_ in side.formats and MINE[mine].prepare in side.meets
        if lease in name or name.removesuffix(TAKING_OVER) not in set(THEIRS) - {name}
    ]


def attempt(act: Act, folder: Path) -> Exception | None:
    """The result of an act: None, or its refusal; a vanished directory may be an OS error."""
    try:
        act(folder)
    except (RetentionError, OSError) as error:
        return error
    return None


def possible(result: Exception | None) -> tuple[bool, ...]:
    """Whether an act counts as executed; a commit may be unknown, and an unfinished erasure has one or not."""
    is_unsure = isinstance(result, CommitUnknownError) or UNFINISHED in str(result)
    return (True, False) if is_unsure else (result is None,)


def steps_of(act: Act, folder: Path) -> list[str]:
    """Every step of an undisturbed act, as `<step>#<n>`."""
    counts: Counter[Step] = Counter()
    reached: list[str] = []

    def note(step: Step) -> None:
        counts[step] += 1
        reached.append(f"{step}#{counts[step]}")

    with watched_by(note):
        act(folder)
    return reached


def interleave(
    folder: Path, mine: Act, theirs: Act, point: str
) -> tuple[Exception | None, Exception | None]:
    """Execute `mine`, and all of `theirs` while `mine` is paused at `point`; returns the result of each."""
    counts: Counter[Step] = Counter()
    meanwhile: list[Exception | None] = []

    def stand_still(step: Step) -> None:
        counts[step] += 1
        if point == f"{step}#{counts[step]}":
            with watched_by(lambda _: None):
                meanwhile.append(attempt(theirs, folder))

    with watched_by(stand_still):
        ended = attempt(mine, folder)
    [other] = meanwhile
    return ended, other


def left_by(folder: Path) -> dict[str, Any]:
    """The state that must match a serial order of the two sides; `refused` if the stream cannot be read."""
    stream = opened_at(folder).new_stream(STREAM)
    opened = stream.opened
    try:
        tables = [rows.select(["seq", "subject", "ts_ns", "payload"]) for rows in stream.messages()]
        counters = opened.store.snapshot().counters if opened.store.exists() else Counters()
    except RetentionError as error:
        return {"refused": str(error)}
    outcomes = history_of(opened.warehouse, STREAM).outcomes()
    done = [record for record in outcomes if record.is_done]
    return {
        "messages": pa.concat_tables(tables).to_pylist() if tables else [],
        "next_seq": counters.next_seq.get(0),
        "consumers": [
            (one.consumer, one.revision, one.state.ack_floor)
            for one in ConsumerTable(opened.root).live(counters)
        ],
        "holds": len(opened_at(folder).holds()),
        "removed": sum(record.removed_messages for record in done),
        "restored": sum(record.as_json().get("restored_messages", 0) for record in done),
    }


class Match:
    """Two sides on one format, from the same initial state."""

    def __init__(self, folder: Path, mine: str, theirs: str, format_: str) -> None:
        self.base = folder / "base"
        self.mine, self.theirs = MINE[mine].act, THEIRS[theirs].act
        MINE[mine].prepare(self.base, format_)
        turns = [(self.mine, self.theirs), (self.theirs, self.mine)]
        self.in_turn = [self._after(f"turns-{n}", *acts) for n, acts in enumerate(turns)]
        self.only_mine = self._after("mine", self.mine)
        self.only_theirs = self._after("theirs", self.theirs)

    def points(self) -> list[str]:
        """The steps of the paused side."""
        return steps_of(self.mine, self._copy("steps"))

    def wrong(self, point: str) -> str | None:
        """The violation if one side is paused at a point while the other acts; None if there is none."""
        folder = self._copy(point)
        mine, theirs = interleave(folder, self.mine, self.theirs, point)
        left = left_by(folder)
        shutil.rmtree(folder)
        if any(
            self.fits(left, mine=is_mine, theirs=is_theirs)
            for is_mine in possible(mine)
            for is_theirs in possible(theirs)
        ):
            return None
        return f"{point}: {mine or 'done'} / {theirs or 'done'}: left {left}"

    def fits(self, left: dict[str, Any], *, mine: bool, theirs: bool) -> bool:
        """Whether the state matches a serial order of the executed sides; both refused is never allowed."""
        allowed = {
            (True, True): self.in_turn,
            (True, False): [self.only_mine],
            (False, True): [self.only_theirs],
            (False, False): [],
        }
        return left in allowed[mine, theirs]

    def _after(self, name: str, *acts: Act) -> dict[str, Any]:
        folder = self._copy(name)
        for act in acts:
            attempt(act, folder)
        return left_by(folder)

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.base, self.base.with_name(name), symlinks=True))


def play(folder: str, case: tuple[str, str, str], every: bool) -> tuple[int, list[str]]:
    """Pause one side at each of its steps while the other acts; returns the number of pauses, and the violations.

    Args:
        folder: a new directory.
        case: one of `MINE`, one of `THEIRS`, the format.
        every: pause at each occurrence of a step; otherwise only at the first.
    """
    hurry()
    match = Match(Path(folder), *case)
    points = [point for point in match.points() if every or point.endswith("#1")]
    wrongs = [f"{'/'.join(case)} at {wrong}" for wrong in map(match.wrong, points) if wrong]
    return len(points), wrongs


def hurry() -> None:
    """Skip waits for a paused side, which releases nothing; copies are written one at a time."""
    turns.LEASE_WAIT_S = settle_files.PATIENCE_S = 0.0
    delta._LONGEST_PAUSE_S = parquet._LONGEST_PAUSE_S = 0.0
    local.THREADS = 1
