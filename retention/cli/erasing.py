"""The command that erases messages, so that no copy of them is left."""

# ruff: noqa: FBT002, PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from retention.cli.app import app
from retention.cli.applying import can_ask
from retention.cli.arguments import Streams
from retention.cli.output import put_json, put_report, put_table, say
from retention.cli.removing import DryRun, Yes
from retention.cli.settings import Settings, settings_of
from retention.core.wording import counted
from retention.errors import UsageError, VerificationError

if TYPE_CHECKING:
    from retention.api.dry_run import DryRun as DryRunOf
    from retention.api.table import Table
    from retention.apply.erase import ErasurePlan
    from retention.erasure.report import ErasureReport
    from retention.rules.erase import ErasedMessages
    from retention.tables.erase import TableErasurePlan
    from retention.views.notebook import ShownErasure

_HEAD = ("STREAM", "ERASURE", "STATE", "SINCE", "BY", "LEFT")
_NAMED_IN_A_LINE = ("subject", "seq")
_Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY", help="Rows of a table in place: COLUMN=VALUE, with commas between them."
    ),
]
_FromFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='A filter, {"subject": …} or {"seq": …} a line; of a table, {"COLUMN": VALUE, …}.',
    ),
]
_Reason: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Required; a keyed hash of it is kept.")
]
_By: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="The time by which it has to be done.")
]
_ArchiveGone: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PLACE", help="With --resume: an archive that no longer exists; that is recorded."
    ),
]


@app.command()
def erase(
    ctx: typer.Context,
    streams: Streams = None,
    subject: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help="Matching subjects: * is one token, > the rest."),
    ] = None,
    seq: Annotated[list[int] | None, typer.Option(metavar="N", help="A sequence.")] = None,
    key: _Keys = None,
    from_file: _FromFile = None,
    reason: _Reason = None,
    by: _By = None,
    status: Annotated[
        bool, typer.Option("--status", help="List erasures, and what is left of each.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the unfinished erasures.")
    ] = False,
    archive_gone: _ArchiveGone = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Erase messages at once, despite grace, so that no copy of them is left; it cannot be undone.

    Rows of a table in place leave the table and our records; older versions are deleted by the table's owner.

    Legal holds win. The search for what was erased reads every file that is left; until it finds nothing, the erasure
    is unfinished (exit code 6).
    """
    from retention.rules.erase import erased_messages

    settings = settings_of(ctx)
    if status:
        _list(settings, streams or ())
        return
    named = list(streams or ())
    if len(named) != 1:
        raise UsageError("erase: name one stream; --status lists the erasures of several")
    name = named[0]
    warehouse = settings.open()
    is_table = name in warehouse.tables()
    if resume:
        if is_table:
            _put(settings, warehouse.table(name).resume_erasures())
        else:
            _put(settings, warehouse.stream(name).resume_erasures(archives_gone=archive_gone or ()))
        return
    if reason is None:
        raise UsageError("erase: give the reason with --reason TEXT; nothing was changed")
    terms = ErasureTerms(reason, by, yes=yes, dry_run=dry_run)
    if is_table or key:
        _refuse_messages(name, subject, seq)
        _erase_rows(settings, warehouse.table(name), key or (), from_file, terms)
        return
    subjects, seqs = _named_in(from_file)
    messages = erased_messages([*(subject or ()), *subjects], [*(seq or ()), *seqs])
    carry_out_erasure(settings, name, messages, terms)


@dataclass(frozen=True)
class ErasureTerms:
    """The terms of an erasure, other than what it erases."""

    reason: str
    by: str | None = None
    yes: bool = False
    """Whether nobody is asked."""
    dry_run: bool = False
    """Whether nothing is erased."""


def carry_out_erasure(
    settings: Settings, name: str, messages: ErasedMessages, terms: ErasureTerms
) -> None:
    """Erase messages, or show what would be erased, or ask first.

    Raises:
        UsageError: standard input is not a terminal to ask on.
        VerificationError: strings of erased messages are left somewhere.
    """
    _refuse_unasked(terms)
    planned = (
        settings.open()
        .stream(name)
        .erase(subjects=messages.subjects, seqs=messages.seqs, reason=terms.reason, by=terms.by)
    )
    _carry_out(settings, planned, terms)


def _erase_rows(
    settings: Settings,
    table: Table,
    texts: Sequence[str],
    from_file: Path | None,
    terms: ErasureTerms,
) -> None:
    """Erase rows of a table in place, as `carry_out_erasure`."""
    _refuse_unasked(terms)
    keys: list[Mapping[str, object]] = [*_parsed_keys(table, texts), *_keys_in(from_file)]
    _carry_out(settings, table.erase(keys, reason=terms.reason, by=terms.by), terms)


def _refuse_messages(name: str, subject: list[str] | None, seq: list[int] | None) -> None:
    if subject or seq:
        raise UsageError(
            f"{name}: --key names rows of a table in place, --subject and --seq name messages of a stream; nothing was "
            "changed"
        )


def _refuse_unasked(terms: ErasureTerms) -> None:
    if not (terms.yes or terms.dry_run or can_ask()):
        raise UsageError(
            "erase destroys messages and rows for good, and standard input is not a terminal to ask on: repeat it with "
            "--yes, or look with --dry-run"
        )


def _carry_out(
    settings: Settings, planned: DryRunOf[Any, ShownErasure], terms: ErasureTerms
) -> None:
    if terms.dry_run:
        _show(settings, planned.plan)
    elif terms.yes or _confirmed(planned.plan):
        _put(settings, [planned.apply()])


def _show(settings: Settings, plan: ErasurePlan | TableErasurePlan) -> None:
    if settings.format == "table":
        put_report(_plan_text(plan))
    else:
        put_json(settings, plan.as_json(), [plan.as_json()])


def _confirmed(plan: ErasurePlan | TableErasurePlan) -> bool:
    for line in _plan_text(plan):
        say(line)
    return typer.confirm("Erase them? It cannot be undone.", err=True)


def _plan_text(plan: ErasurePlan | TableErasurePlan) -> Iterator[str]:
    from retention.tables.erase import TableErasurePlan
    from retention.views.text_erase import erasure_plan_text, table_erasure_plan_text

    if isinstance(plan, TableErasurePlan):
        return table_erasure_plan_text(plan)
    return erasure_plan_text(plan)


def _put(settings: Settings, reports: Sequence[ErasureReport]) -> None:
    from retention.views.text_erase import erasure_text

    if settings.format == "table":
        for report in reports:
            put_report(erasure_text(report))
    else:
        entries = [report.as_json() for report in reports]
        put_json(settings, entries, entries)
    for report in reports:
        _refuse_unfinished(report)


def _refuse_unfinished(report: ErasureReport) -> None:
    """Fail if something is left of an erasure.

    Raises:
        VerificationError: it is unfinished.
    """
    record = report.record
    erased = "messages" if report.location is None else "rows"
    if record.traces:
        raise VerificationError(
            f"{report.stream}: erasure {record.id} is unfinished: {counted(len(record.traces), 'place')} with "
            f"something of the erased {erased}, such as {record.traces[0].location}; these {erased} are erased; "
            "change or delete these files, then repeat the command with --resume"
        )
    if record.unreached:
        raise VerificationError(
            f"{report.stream}: erasure {record.id} is unfinished: {record.unreached[0]}; the {erased} are erased "
            "everywhere else; then repeat the command with --resume, and with --archive-gone PLACE if it no longer "
            "exists"
        )
    if record.unread:
        raise VerificationError(
            f"{report.stream}: erasure {record.id} is unfinished: {counted(len(record.unread), 'file')} that cannot be "
            f"decoded may have something of them, such as {record.unread[0]}; the {erased} are erased; "
            "restore, repair or delete these files, then repeat the command with --resume"
        )


def _list(settings: Settings, streams: Sequence[str]) -> None:
    from retention.views.text_erase import erasure_row

    warehouse = settings.open()
    tables = set(warehouse.tables())
    reports = [
        report
        for name in (streams or [*warehouse.streams(), *warehouse.tables()])
        for report in (warehouse.table if name in tables else warehouse.stream)(name).erasures()
    ]
    if settings.format == "table":
        put_table(_HEAD, (erasure_row(report.stream, report.record) for report in reports))
    else:
        entries = [report.as_json() for report in reports]
        put_json(settings, entries, entries)


def _named_in(place: Path | None) -> tuple[list[str], list[int]]:
    """The subject filters and the sequences of a file, one a line."""
    subjects: list[str] = []
    seqs: list[int] = []
    for number, line in enumerate(_lines(place), start=1):
        value = _value(line)
        if isinstance(value, dict) and len(value) == 1 and set(value) <= set(_NAMED_IN_A_LINE):
            [value] = value.values()
        if isinstance(value, int) and not isinstance(value, bool):
            seqs.append(value)
        elif isinstance(value, str):
            subjects.append(value)
        else:
            raise UsageError(
                f"{place}: line {number} names neither a subject nor a sequence; nothing was changed; write a subject "
                'filter, a sequence, {"subject": …} or {"seq": …}'
            )
    return subjects, seqs


def _parsed_keys(table: Table, texts: Sequence[str]) -> list[dict[str, str]]:
    from retention.tables.holds import parse_held_key

    return [parse_held_key(table.opened, text) for text in texts]


def _keys_in(place: Path | None) -> list[dict[str, object]]:
    """The keys of a file, a JSON object a line."""
    keys: list[dict[str, object]] = []
    for number, line in enumerate(_lines(place), start=1):
        value = _value(line)
        if not isinstance(value, dict):
            raise UsageError(
                f"{place}: line {number} is no key; nothing was changed; write a JSON object of columns and values, "
                'such as {"tenant": "a", "user_id": 7}'
            )
        keys.append(value)
    return keys


def _lines(place: Path | None) -> Iterator[str]:
    if place is None:
        return
    try:
        with place.open(encoding="utf-8") as source:
            yield from (text for line in source if (text := line.strip()))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{place}: cannot be read ({error}); nothing was changed") from error


def _value(line: str) -> object:
    """The value of a line: JSON, or else the text itself."""
    with suppress(json.JSONDecodeError, RecursionError):
        return json.loads(line)
    return line
