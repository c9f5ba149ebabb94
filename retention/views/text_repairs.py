"""Repairs as lines of text, needed or done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from retention.core.units import format_duration, format_instant, format_size
from retention.core.wording import counted
from retention.views.text_clock import remedy_text

if TYPE_CHECKING:
    from retention.apply.repair.clock import ClockRepair, WrongRun
    from retention.apply.repair.foreign import ForeignRepair
    from retention.apply.repair.lost_commits import CommittedAgain, LostCommitRepair
    from retention.apply.repair.lost_files import FileRepair
    from retention.apply.repair.place import PlaceRepair
    from retention.apply.repair.replay import ReplayRepair
    from retention.apply.repair.returned import ReturnedRepair
    from retention.apply.repair.sequences import SequenceRepair


def clock_repair_text(done: ClockRepair, grace_ns: int) -> Iterator[str]:
    """Passes made with a wrong clock, and how they are settled; `grace_ns`: how long they can be undone."""
    if done.ahead:
        yield from _ahead_lines(done)
    elif done.last_as_of_ns is None and not done.wrong:
        yield f"{done.stream}: nothing to repair: no pass has run"
    elif not done.wrong:
        yield f"{done.stream}: nothing to repair: no run was later than {format_instant(done.as_of_ns)}"
    yield from _wrong_runs_lines(done, grace_ns)
    if done.later is not None:
        yield (
            f"  messages among sequences {done.later.first_seq:,} to {done.later.last_seq:,} have later times than the "
            f"clock, up to {format_instant(done.later.latest_ns)}: until then age removes neither them nor later ones; "
            "delete those that a wrong clock stamped"
        )
    if done.run:
        yield f"  run {done.run}"


def _ahead_lines(done: ClockRepair) -> Iterator[str]:
    """The lines about partitions of a topic with times ahead of the clock."""
    yield f"{done.stream}: partitions with later times than the clock"
    for stamped in done.ahead:
        yield (
            f"  partition {stamped.partition}: offsets {stamped.first_seq:,} to {stamped.last_seq:,}, up to "
            f"{format_instant(stamped.latest_ns)}"
        )
        if stamped.is_open:
            verb = "is" if done.sealed else "would be"
            yield f"    its active segment {verb} sealed, so that appended messages have the time of the clock again"
        yield f"    {remedy_text(done.stream, stamped)}"


def _wrong_runs_lines(done: ClockRepair, grace_ns: int) -> Iterator[str]:
    """The lines about passes with a wrong clock; empty if there are none."""
    if not done.wrong:
        return
    counts = "counts" if done.run else "would count"
    before = "" if done.last_as_of_ns is None else f", not {format_instant(done.last_as_of_ns)}"
    yield f"{done.stream}: {format_instant(done.as_of_ns)} {counts} as the last applied instant{before}"
    for wrong in done.wrong:
        yield from _wrong_lines(wrong, grace_ns)


def _wrong_lines(wrong: WrongRun, grace_ns: int) -> Iterator[str]:
    yield f"  run {wrong.run}: {wrong.kind} as of {format_instant(wrong.as_of_ns)}"
    if wrong.removed_messages:
        rules = ", ".join(f"{number:,} by {rule}" for rule, number in wrong.by_rule.items())
        size = format_size(wrong.removed_bytes)
        yield f"    removed {counted(wrong.removed_messages, 'message')} ({size}): {rules}"
        if wrong.undone_by:
            yield f"    undone by {wrong.undone_by}"
        else:
            back = f"`retention undo {wrong.run}`"
            yield f"    {back} restores them, within the grace ({format_duration(grace_ns)})"
    if wrong.deleted_consumers:
        names = ", ".join(wrong.deleted_consumers)
        yield f"    deleted consumers as inactive, which no undo restores: {names}"


def sequence_repair_text(done: SequenceRepair) -> Iterator[str]:
    """The rows with impossible numbers, and the impossible counters."""
    if not done.is_needed:
        yield f"{done.stream}: nothing to repair: all sequences and sizes are possible"
        return
    removes, begins = ("removed", "began") if done.run else ("would remove", "would begin")
    kept = sum(file.kept for file in done.files)
    rest = f", keeping {kept:,} beside them" if kept else ""
    yield f"{done.stream}: {removes} {counted(done.messages, 'row')} with impossible numbers{rest}"
    for file in done.files:
        seqs = "only its statistics are wrong"
        if file.seqs is not None:
            seqs = f"{counted(file.messages, 'row')}, sequences {file.seqs[0]} to {file.seqs[1]}"
        yield f"  {file.path}: {seqs}"
    for name, value in done.counters.items():
        yield f"  {name}: {value} no longer counts"
    if done.begins_epoch:
        next_seqs = ", ".join(
            f"{seq:,}" if len(done.next_seq) == 1 else f"{seq:,} (partition {partition})"
            for partition, seq in done.next_seq.items()
        )
        yield f"  a new epoch {begins}; the next sequence is {next_seqs}"
    for consumer in done.consumers:
        yield f"  consumer {consumer} was beyond the end, and is moved back to it"
    if done.run:
        yield f"  run {done.run}"


def returned_repair_text(done: ReturnedRepair) -> Iterator[str]:
    """The resurrected messages, by commit, and their location."""
    if not done.commits:
        yield f"{done.stream}: no removed message reappeared"
        return
    messages, size = counted(done.messages, "message"), format_size(done.bytes)
    yield f"{done.stream}: {messages} ({size}) reappeared after removal"
    for commit in done.commits:
        yield f"  by version {commit.version} of the table, {commit.program}, which read {commit.removed[0]}"
    for back in done.back:
        ranges = ", ".join(f"{first}..{last}" for first, last in back.ranges.tolist())
        yield f"  {ranges} in {back.file.path}"
    if done.run is not None:
        yield f"  removed by run {done.run}"


def lost_commits_text(done: LostCommitRepair) -> Iterator[str]:
    """The commits of ours that another program overwrote, and the parts of them that are in the table again."""
    if not done.commits:
        yield f"{done.stream}: nothing to repair: every commit of ours is in the log"
        return
    for again in done.commits:
        yield from _again_lines(done.stream, again)


def _again_lines(stream: str, again: CommittedAgain) -> Iterator[str]:
    fields, lost = again.as_json(), again.commit
    was = "was" if again.run else "is"
    yield f"{stream}: version {lost.version}, run {fields['lost_run']}, {was} lost: {lost.program} overwrote it"
    if again.added.num_rows:
        messages, size = counted(fields["messages"], "message"), format_size(fields["bytes"])
        seqs = f"sequences {fields['first_seq']:,} to {fields['last_seq']:,}"
        yield f"  in the table again: {messages} ({size}), {seqs}"
    if again.removed.num_rows:
        yield f"  removed again: {counted(again.removed.num_rows, 'file')}"
    for name, value in again.counters.items():
        yield f"  {name}: {value}"
    if again.reason is not None:
        yield f"  not all of it: {again.reason}"
    if again.run is not None:
        yield f"  run {again.run}"


def place_repair_text(done: PlaceRepair) -> Iterator[str]:
    """The locations from which a stream is archived, and its present one."""
    if done.here is None:
        yield f"{done.stream}: nothing to repair: it was not moved, or has no archive"
        return
    noted = ", ".join(f"{was.warehouse} (host {was.host})" for was in done.noted)
    yield f"{done.stream}: archived from {noted}, now at {done.here.warehouse}"
    if done.is_done:
        yield f"  now archived from there as well, to {done.archive}"


def foreign_repair_text(done: ForeignRepair) -> Iterator[str]:
    """The files of other writers that cannot be adopted, and their destination."""
    if not done.files:
        yield f"{done.stream}: nothing to repair: every file can be adopted"
        return
    number = counted(len(done.files), "file")
    if done.directory is None:
        yield f"{done.stream}: {number} of other writers cannot be adopted"
    else:
        yield f"{done.stream}: moved {number} of other writers to {done.directory}"
    for file in done.files:
        yield f"  {file.path}: {file.reason}"
    if done.run:
        yield f"  run {done.run}"


def lost_files_text(done: FileRepair) -> Iterator[str]:
    """The files to remove from the table, and their contents."""
    if not done.files:
        yield (
            f"{done.stream}: nothing to repair: every file exists, and its sequences can be read; name a file to "
            "have it read whole"
        )
        return
    verb = "removed" if done.run else "would remove"
    yield f"{done.stream}: {verb} {counted(len(done.files), 'file')} from the table"
    for file in done.files:
        held = "messages" if file.messages is None else counted(file.messages, "message")
        yield f"  {file.path}: {file.reason}; gives up {held} among sequences {file.first_seq} to {file.last_seq}"
    if done.run:
        yield f"  run {done.run}"


def lost_replay_text(done: ReplayRepair) -> Iterator[str]:
    """The replay of a stream that cannot go on, or does so again."""
    if not done.is_needed:
        yield f"{done.stream}: nothing to repair: the next pass can go on with its replay"
        return
    verb = "replays" if done.is_done else "would replay"
    yield (
        f"{done.stream}: the next pass {verb} what is stored from the beginning: messages that legal holds kept count "
        "again, and ids of removed messages do not count"
    )
    yield f"  {done.reason}"
