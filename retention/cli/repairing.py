"""Commands that mend a stream which no pass goes on with: each says what it would do, and does it with --yes."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.arguments import AsOf, OneStream
from retention.cli.output import put_json, put_report
from retention.cli.settings import settings_of
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.apply.repair.clock import ClockRepair, WrongRun
    from retention.apply.repair.foreign import ForeignRepair
    from retention.apply.repair.lost_commits import CommittedAgain, LostCommitRepair
    from retention.apply.repair.returned import ReturnedRepair
    from retention.apply.repair.sequences import SequenceRepair

repair = typer.Typer(
    help="Mend a stream that no pass goes on with; dry unless --yes.", no_args_is_help=True
)

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(repair, name="repair")


@repair.command()
def clock(
    ctx: typer.Context,
    stream: OneStream,
    as_of: AsOf = None,
    yes: Yes = False,
) -> None:
    """Settle a pass with a wrong clock: an instant, now if none is given, counts as the last applied one."""
    settings = settings_of(ctx)
    mended = settings.open().log(stream)
    done = mended.repair_wrong_clock(as_of) if yes else mended.find_wrong_clock(as_of)
    if settings.format == "table":
        put_report(_clock_lines(done, mended.opened.config.grace_ns))
    else:
        put_json(settings, done.as_json(), [done.as_json()])


def _clock_lines(done: ClockRepair, grace_ns: int) -> Iterator[str]:
    from retention.core.units import format_instant

    if done.last_as_of_ns is None and not done.wrong:
        yield f"{done.stream}: no pass was ever made, so there is nothing to repair"
    elif not done.wrong:
        yield f"{done.stream}: no run was later than {format_instant(done.as_of_ns)}, so there is nothing to repair"
    else:
        counts = "counts" if done.run else "would count"
        before = "" if done.last_as_of_ns is None else f", not {format_instant(done.last_as_of_ns)}"
        yield f"{done.stream}: {format_instant(done.as_of_ns)} {counts} as the last applied instant{before}"
        for wrong in done.wrong:
            yield from _wrong_lines(wrong, grace_ns)
    if done.later is not None:
        yield (
            f"  messages among sequences {done.later.first_seq:,} to {done.later.last_seq:,} have later times than the "
            f"clock, up to {format_instant(done.later.latest_ns)}: until then age takes none of them, nor what lies "
            "behind them; delete those that a wrong clock stamped"
        )
    if done.run:
        yield f"  run {done.run}"
    elif done.wrong:
        yield "  nothing was changed; repeat it with --yes"


def _wrong_lines(wrong: WrongRun, grace_ns: int) -> Iterator[str]:
    from retention.core.units import format_duration, format_instant, format_size

    yield f"  run {wrong.run}: {wrong.kind} as of {format_instant(wrong.as_of_ns)}"
    if wrong.removed_messages:
        rules = ", ".join(f"{number:,} by {rule}" for rule, number in wrong.by_rule.items())
        size = format_size(wrong.removed_bytes)
        yield f"    removed {counted(wrong.removed_messages, 'message')} ({size}): {rules}"
        if wrong.undone_by:
            yield f"    undone by {wrong.undone_by}"
        else:
            back = f"`retention undo {wrong.run}`"
            yield f"    {back} brings them back, within the grace ({format_duration(grace_ns)})"
    if wrong.deleted_consumers:
        names = ", ".join(wrong.deleted_consumers)
        yield f"    deleted consumers that it took for unused, which no undo brings back: {names}"


@repair.command()
def sequences(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Take rows with impossible sequences or sizes out of a stream or topic, and count on from the others."""
    settings = settings_of(ctx)
    mended = settings.open().log(stream)
    done = mended.repair_impossible_sequences() if yes else mended.find_impossible_sequences()
    if settings.format == "table":
        put_report(_sequence_lines(done))
    else:
        put_json(settings, done.as_json(), [done.as_json()])


def _sequence_lines(done: SequenceRepair) -> Iterator[str]:

    if not done.is_needed:
        yield f"{done.stream}: nothing to repair: its sequences and sizes are such as messages have"
        return
    goes, begins = ("went", "began") if done.run else ("would go", "would begin")
    kept = sum(file.kept for file in done.files)
    stay = f", {kept:,} beside them stay" if kept else ""
    yield f"{done.stream}: {counted(done.messages, 'row')} with impossible numbers {goes}{stay}"
    for file in done.files:
        seqs = "only its statistics are wrong"
        if file.seqs is not None:
            seqs = f"{counted(file.messages, 'row')}, sequences {file.seqs[0]} to {file.seqs[1]}"
        yield f"  {file.path}: {seqs}"
    for name, value in done.counters.items():
        yield f"  {name}: {value} does not count any more"
    if done.begins_epoch:
        behind = ", ".join(
            f"{seq:,}" if len(done.next_seq) == 1 else f"{seq:,} (partition {partition})"
            for partition, seq in done.next_seq.items()
        )
        yield f"  a new epoch {begins}; the next sequence is {behind}"
    for consumer in done.consumers:
        yield f"  consumer {consumer} had come further, and is taken back to the end"
    yield f"  run {done.run}" if done.run else "  nothing was changed; --yes does it"


@repair.command()
def returned(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Remove again what another writer brought back by overlooking a removal."""
    settings = settings_of(ctx)
    mended = settings.open().log(stream)
    done = mended.repair_returned_messages() if yes else mended.find_returned_messages()
    if settings.format == "table":
        put_report(_returned_lines(done))
    else:
        put_json(settings, done.as_json(), [done.as_json()])


def _returned_lines(done: ReturnedRepair) -> Iterator[str]:
    from retention.core.units import format_size

    if not done.commits:
        yield f"{done.stream}: nothing came back"
        return
    messages, size = counted(done.messages, "message"), format_size(done.bytes)
    yield f"{done.stream}: {messages} ({size}) that had been removed came back"
    for commit in done.commits:
        yield f"  by version {commit.version} of the table, {commit.program}, which read {commit.removed[0]}"
    for back in done.back:
        ranges = ", ".join(f"{first}..{last}" for first, last in back.ranges.tolist())
        yield f"  {ranges} in {back.file.path}"
    if done.run is None:
        yield "  nothing was changed; remove them with --yes"
    else:
        yield f"  removed by run {done.run}"


@repair.command("lost-commit")
def lost_commit(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Commit again what another program, Spark on a local disk, overwrote in the log of a Delta table."""
    settings = settings_of(ctx)
    mended = settings.open().log(stream)
    done = mended.repair_lost_commits() if yes else mended.find_lost_commits()
    if settings.format == "table":
        put_report(_lost_lines(done))
    else:
        put_json(settings, done.as_json(), [done.as_json()])


def _lost_lines(done: LostCommitRepair) -> Iterator[str]:
    if not done.commits:
        yield f"{done.stream}: nothing to repair: every commit of ours is in the log"
        return
    for again in done.commits:
        yield from _again_lines(done.stream, again)
    if any(again.run is None for again in done.commits):
        yield "  nothing was changed; commit it again with --yes"


def _again_lines(stream: str, again: CommittedAgain) -> Iterator[str]:
    from retention.core.units import format_size

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


@repair.command()
def foreign(ctx: typer.Context, stream: OneStream, yes: Yes = False) -> None:
    """Move files that another writer put into a Parquet stream, and that it cannot take in, aside; none is deleted."""
    settings = settings_of(ctx)
    mended = settings.open().log(stream)
    done = mended.repair_foreign_files() if yes else mended.find_foreign_files()
    if settings.format == "table":
        put_report(_foreign_lines(done))
    else:
        put_json(settings, done.as_json(), [done.as_json()])


def _foreign_lines(done: ForeignRepair) -> Iterator[str]:

    if not done.files:
        yield f"{done.stream}: nothing to repair: every file can be taken in"
        return
    head = f"{done.stream}: {counted(len(done.files), 'file')} of other writers cannot be taken in"
    yield head if done.directory is None else f"{head}, and went to {done.directory}"
    for file in done.files:
        yield f"  {file.path}: {file.reason}"
    yield f"  run {done.run}" if done.run else "  nothing was changed; --yes moves them aside"
