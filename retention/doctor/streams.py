"""Checks of one stream: its table, its files, its runs, and the holders of its leases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from retention.apply.archive_place import other_place, place_phrase
from retention.apply.orphans import orphans
from retention.apply.replay import missing_records
from retention.context.context import OpenedStream
from retention.core.spoken_commands import command
from retention.core.units import DAY, format_instant
from retention.core.wording import counted
from retention.doctor.finding import Finding, findings_of, ok, problem, warning
from retention.doctor.ledger import check_ledger_of
from retention.doctor.place import check_history_clock, check_versions
from retention.doctor.releases import check_releases
from retention.doctor.runs import check_runs
from retention.doctor.synced import check_synced
from retention.history.runs import history_of
from retention.interest.interest import consumer_snapshot_of
from retention.planners.topic import plan_topic_table
from retention.storage import files
from retention.stores.delta.commit import of_vectors
from retention.stores.delta.foreign_writers import WAYS, unconditional_commits
from retention.stores.delta.log import versions
from retention.stores.lease import KINDS, holder
from retention.stores.table_format import Inspection, Unfit
from retention.views.text_clock import stamped_text

MANY_FILES = 200_000
"""The number of files above which every plan is slow, and segments are needlessly small."""
_NAMED = 3


def check_stream(opened: OpenedStream) -> Iterator[Finding]:
    """Check one stream; an exception in a check becomes its finding, and the other checks continue."""
    checks: list[tuple[str, Callable[[OpenedStream], Iterator[Finding]]]] = [
        ("table", _table),
        ("releases", check_releases),
        ("consumers", _consumers),
        ("writers", _writers),
        ("times", _times),
        ("runs", _runs),
        ("ledger", _ledger),
        ("leftovers", _leftovers),
        ("leases", _leases),
        ("archive", _archive),
        ("sync", check_synced),
    ]
    for finding in findings_of(checks, opened):
        yield replace(finding, stream=opened.name)


def _table(opened: OpenedStream) -> Iterator[Finding]:
    name = opened.name
    table = opened.table_format.inspect(opened.layout, opened.config.grace_ns)
    if table is None:
        yield ok("table", "nothing was written yet", name)
        return
    count = table.files.num_rows
    if table.version < 0:
        yield ok("table", "not created yet, but there are files of another writer", name)
    else:
        yield ok("table", f"opens at version {table.version} with {counted(count, 'file')}", name)
    if table.unfit:
        yield _unfit(table.unfit, name)
    yield _data_files(table, name)
    yield _statistics(table, name)
    yield from _unfinished_work(table, name)
    if table.vectors:
        yield _vectors(opened, table.vectors)
    if count > MANY_FILES:
        yield warning(
            "segments",
            f"{counted(count, 'file')} make every plan slow",
            "raise segment_size and segment_span, and append in larger batches",
            name,
        )


def _archive(opened: OpenedStream) -> Iterator[Finding]:
    other = other_place(opened)
    if other is not None:
        yield problem(
            "archive",
            f"{place_phrase(*other)}: nothing is removed",
            f"give a copy an `archive:` of its own, or run {command('repair place', opened.name, options='--yes')}",
            opened.name,
        )
    place = opened.config.archive
    if place is not None and files.is_remote(place):
        yield from check_versions(place, opened.name)


def _unfit(unfit: Sequence[Unfit], name: str) -> Finding:
    listed = "; ".join(f"{file.path} {file.reason}" for file in unfit[:_NAMED])
    more = f"; and {len(unfit) - _NAMED:,} more" if len(unfit) > _NAMED else ""
    return problem(
        "foreign files",
        f"{counted(len(unfit), 'file')} of other writers cannot be adopted, and until then every run is refused: "
        f"{listed}{more}",
        f"remove them, or run {command('repair foreign', name, options='--yes')}, which moves them aside",
        name,
    )


def _consumers(opened: OpenedStream) -> Iterator[Finding]:
    if not opened.config.policy().asks_consumers or not opened.table.exists():
        return
    inventory = opened.store.inventory(opened.store.snapshot())
    count = len(consumer_snapshot_of(opened, inventory, opened.clock()).interests)
    yield ok("consumers", f"{count:,} of them have valid states", opened.name)


def _unfinished_work(table: Inspection, name: str) -> Iterator[Finding]:
    """The work that an interrupted run leaves to the next one after its commit."""
    if table.unmoved:
        yield warning(
            "moves",
            f"{counted(table.unmoved, 'commit has', 'commits have')} files outside their directories, where only other "
            "readers miss them",
            "run `retention apply`: the next run of the stream moves them",
            name,
        )
    if table.grace:
        listed = ", ".join(f"{key} = {value}" for key, value in table.grace.items())
        by_run = "run `retention apply`: a run that removes something writes it"
        by_owner = f"run {table.grace_statement} in Spark"
        yield warning(
            "grace",
            f"the table's properties differ from the configured grace: {listed}",
            f"{by_owner if table.grace_statement else by_run}; until then VACUUM follows the table",
            name,
        )


def _writers(opened: OpenedStream) -> Iterator[Finding]:
    layout = opened.layout
    if not files.is_remote(opened.root) or not opened.table.exists():
        return
    newest = versions(layout)[0][-1]
    commit = next(unconditional_commits(layout, newest), None)
    if commit is None:
        yield ok("writers", "all of them exclude rivals by conditional put", opened.name)
        return
    version, program = commit
    detail = f"{program} committed version {version}, and can overwrite commits of others there"
    if opened.config.exclusive:
        yield ok(
            "writers", f"{detail}; exclusive: true says that it never runs beside", opened.name
        )
        return
    yield problem("writers", detail, WAYS, opened.name)


def _times(opened: OpenedStream) -> Iterator[Finding]:
    topic = opened.config.policy().topic
    if topic is None or not opened.table.exists():
        return
    for stamped in plan_topic_table(opened, topic, opened.clock()).plan.ahead:
        yield warning(
            "times",
            f"{stamped_text(stamped)}, and until then age removes nothing of the partition",
            f"run {command('repair clock', opened.name, options='--yes')}, which shows how to remove them",
            opened.name,
        )


def _data_files(table: Inspection, name: str) -> Finding:
    wrong = table.wrong_lengths()
    if not wrong:
        return ok("data files", "every file exists with its length", name)
    listed = ", ".join(
        f"{location} ({_length(there, logged)})" for location, there, logged in wrong[:_NAMED]
    )
    more = f", and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
    return Finding(
        "data files",
        "problem",
        f"{len(wrong):,} of {counted(table.files.num_rows, 'file')} not as committed: {listed}{more}",
        f"restore them from a copy, or give up their messages: {command('repair lost', name, options='--yes')}",
        name,
        damage=True,
    )


def _length(there: int | None, logged: int) -> str:
    return "missing" if there is None else f"{counted(there, 'byte')} instead of {logged:,}"


def _statistics(table: Inspection, name: str) -> Finding:
    if not table.unknown:
        return ok("statistics", "known for every file: a plan opens none to read them", name)
    return warning(
        "statistics",
        f"unknown for {counted(table.unknown, 'file')}, which the next plan opens once",
        "run `retention plan` to read them now",
        name,
    )


def _vectors(opened: OpenedStream, count: int) -> Finding:
    detail = (
        f"{counted(count, 'file carries', 'files carry')} deletion vectors that only Spark can read"
    )
    if opened.config.engine == "local":
        remedy = of_vectors(opened.layout)
        return problem("deletion vectors", detail, remedy, opened.name)
    remedy = "nothing: the next `retention apply` has Spark rewrite those files, if it touches them"
    return warning("deletion vectors", detail, remedy, opened.name)


def _runs(opened: OpenedStream) -> Iterator[Finding]:
    name, history = opened.name, history_of(opened.warehouse, opened.name)
    yield from check_runs(history, "messages of the stream", "the table", name)
    repair = command("repair clock", name, options="--yes")
    remedy = f"set the clock, or run {repair} if that instant lay in the future"
    clock = check_history_clock(history.last_as_of_ns(), opened.clock(), remedy, name)
    if clock is not None:
        yield clock


def _ledger(opened: OpenedStream) -> Iterator[Finding]:
    yield from check_ledger_of(opened.ledger, opened.warehouse, partial(missing_records, opened))


def _leftovers(opened: OpenedStream) -> Iterator[Finding]:
    name, begun = opened.name, history_of(opened.warehouse, opened.name).directory
    leftovers = [orphan for orphan in orphans(opened) if not orphan.location.startswith(begun)]
    if not leftovers:
        yield ok("leftovers", "every file is accounted for", name)
        return
    oldest = min(leftovers, key=lambda orphan: orphan.since_ns)
    young = sum(1 for orphan in leftovers if orphan.since_ns > opened.clock() - DAY)
    yield warning(
        "leftovers",
        f"{counted(len(leftovers), 'file')} that no commit accounts for ({young:,} of them younger than a day, perhaps "
        f"of a run in progress), the oldest {oldest.location}: {oldest.what}, {format_instant(oldest.since_ns)}",
        "they only take up space; `retention reclaim --leftovers --yes` notes them, and deletes them once they have "
        "been noted for the grace period",
        name,
    )


def _leases(opened: OpenedStream) -> Iterator[Finding]:
    held = False
    for kind in KINDS:
        owner = holder(opened.root, kind)
        if owner is None:
            continue
        held = True
        yield warning(
            "leases",
            f"the {kind} lease is held by {owner}",
            "wait for it, or end that process: its lease is free at once",
            opened.name,
        )
    if not held:
        yield ok("leases", "no process holds one", opened.name)
