"""Commands that read: validate, messages, state, stats."""

# ruff: noqa: PLR0913, PLR0917  (typer makes options of parameters)
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retention.cli.app import app
from retention.cli.arguments import OneStream, Partition, Streams, Tags, Topics
from retention.cli.consumers import put_consumers
from retention.cli.output import (
    MOST_BLOCKS,
    chosen_streams,
    chosen_with_tables,
    finish,
    put_json,
    put_json_lines,
    put_lines,
    put_report,
    put_table,
    say,
    say_unlisted,
)
from retention.cli.settings import settings_of
from retention.core.units import format_instant, parse_duration
from retention.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from retention.api.warehouse import Warehouse
    from retention.core.outcomes import Outcome
    from retention.inspect.consumers import ConsumerInfo
    from retention.inspect.lag import Lag
    from retention.inspect.state import State
    from retention.tables.state import TableState

_SPARE = ("SEGMENTS", "SUBJECTS", "FROM", "TO", "KEYS")
"""Columns of states that a narrow terminal omits: --format json has all."""
_BEHIND = 3
_SHOWN = ["seq", "subject", "ts_ns", "size", "headers", "payload"]


@app.command()
def validate(ctx: typer.Context) -> None:
    """Check the configuration, and explain its effect."""
    from retention.config import explain_config, explain_stream
    from retention.config.describe_table import table_in_words
    from retention.config.shared_directories import refuse_any_shared

    settings = settings_of(ctx)
    if settings.config_file is None:
        raise UsageError(
            f"{settings.place}: has no retention.yaml to validate; name one with --config FILE"
        )
    config = settings.config()
    refuse_any_shared(config.warehouse, [stream.name for stream in config.streams])
    if settings.format == "table":
        put_lines(explain_config(config))
    else:
        streams = [
            {"stream": stream.name, "meaning": explain_stream(stream)} for stream in config.streams
        ]
        tables = [
            {"table": table.name, "location": table.location, "meaning": table_in_words(table)}
            for table in config.tables
        ]
        document = {"warehouse": config.warehouse, "streams": streams, "tables": tables}
        put_json(settings, document, [*streams, *tables])
    finish([], say_unlisted(settings.open(), ()).exit_code)


@app.command()
def messages(
    ctx: typer.Context,
    stream: OneStream,
    partition: Partition = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only matching subjects: * is one token, > the rest."),
    ] = None,
    from_seq: Annotated[
        int | None, typer.Option(metavar="N", help="Only from this sequence on.")
    ] = None,
    last: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the newest N.")] = None,
) -> None:
    """Print messages by partition and sequence."""
    settings = settings_of(ctx)
    log = settings.open().log(stream)
    from retention.api.topic import Topic
    from retention.formats.printed_lines import message_lines
    from retention.inspect.messages import Selection
    from retention.inspect.topic_messages import topic_lines, topic_text

    tables = log.messages(Selection(partition, subject, from_seq, last))
    is_topic = isinstance(log, Topic)
    if settings.format == "table":
        put_lines(topic_text(tables) if is_topic else _message_rows(tables))
        return
    as_lines = topic_lines if is_topic else message_lines
    lines = (line for table in tables for line in as_lines(table))
    put_json_lines(lines if settings.format == "jsonl" else _as_array(lines))


@dataclass(frozen=True)
class StateDetails:
    """The optional tables beside that of a state: consumers and writers."""

    warehouse: Warehouse
    consumers: bool
    """Whether to show its readers."""
    writers: bool
    """Whether to show the writers of batches."""

    def put(self, states: Sequence[State]) -> None:
        """Print the tables of consumers and of writers."""
        if self.consumers:
            names = [state.stream for state in states]
            put_consumers([info for name in names for info in _consumers(self.warehouse, name)])
        if self.writers:
            _put_writers(self.warehouse, states)

    def add_to(self, entries: Sequence[dict[str, Any]]) -> None:
        """Add consumers and writers to each stream's JSON."""
        for entry in entries if self.consumers else ():
            listed = _consumers(self.warehouse, entry["stream"])
            entry["consumers"] = [info.as_json() for info in listed]
        for entry in entries if self.writers else ():
            entry["writers"] = self.warehouse.log(entry["stream"]).last_batches()


@app.command()
def state(
    ctx: typer.Context,
    streams: Streams = None,
    tags: Tags = None,
    consumers: Annotated[  # noqa: FBT002  (typer makes an option of it)
        bool,
        typer.Option("--consumers", help="Also show consumers and their positions."),
    ] = False,
    writers: Annotated[  # noqa: FBT002  (typer makes an option of it)
        bool,
        typer.Option("--writers", help="Also show writers and their last batches."),
    ] = False,
    due: Annotated[  # noqa: FBT002  (typer makes an option of it)
        bool,
        typer.Option("--due", help="Show the next removals and their amounts instead."),
    ] = False,
    behind: Annotated[  # noqa: FBT002  (typer makes an option of it)
        bool, typer.Option("--behind", help="Only those that lag behind their policy.")
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Only the N that lag the longest."),
    ] = None,
    max_lag: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Exit with 3 if one lags longer than this."),
    ] = None,
) -> None:
    """Show what streams and tables hold, and their lag behind the policy."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.core.outcomes import act_sequentially
    from retention.views.json_entries import entry, table_entry

    most_ns = None if max_lag is None else parse_duration(max_lag)
    now = warehouse.clock()
    names, tables = chosen_with_tables(warehouse, streams, tags, warehouse.streams())
    outcomes = act_sequentially(names, lambda name: warehouse.log(name).state(now), warehouse.clock)
    of_tables = warehouse.table_states(tables, now)
    every: list[Outcome[Any]] = [*outcomes, *of_tables]
    is_table = settings.format == "table"
    chosen = _shown(every, behind=behind, top=top, is_table=is_table)
    shown = [outcome for outcome in chosen if outcome.stream not in tables]
    tables_shown = [outcome for outcome in chosen if outcome.stream in tables]
    details = StateDetails(warehouse, consumers=consumers, writers=writers)
    if is_table:
        states = _values(shown) if behind or top else _worth_a_row(_values(shown))
        _put_table_of(states, due=due)
        if len(outcomes) > MOST_BLOCKS:
            _put_sum(_values(outcomes))
        details.put(states)
        _put_states_of_tables(_values(tables_shown), due=due)
    else:
        entries = [entry(outcome) for outcome in shown]
        details.add_to([known for known in entries if "error" not in known])
        entries += map(table_entry, tables_shown)
        put_json(settings, entries, entries)
    is_behind = most_ns is not None and _say_behind(every, now, most_ns)
    finish(every, say_unlisted(warehouse, streams, tags).exit_code or (_BEHIND if is_behind else 0))


@app.command()
def stats(ctx: typer.Context, topics: Topics = None, tags: Tags = None) -> None:
    """Show totals of topics, Iggy streams and partitions."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    chosen = chosen_streams(warehouse, topics, tags, warehouse.topics())
    statistics = warehouse.topic_stats(chosen)
    if settings.format == "table":
        from retention.views.text_topic import STATS_HEAD, stats_rows

        put_table(STATS_HEAD, stats_rows(statistics), STATS_HEAD[2:])
    else:
        put_json(settings, statistics.as_json(), statistics.as_json())


def _say_behind(outcomes: Sequence[Outcome[Any]], now_ns: int, most_ns: int) -> bool:
    """Name the streams and tables that lag for longer than allowed; return whether there are any."""
    from retention.inspect.state import State
    from retention.views.text import behind_text
    from retention.views.text_table import table_behind_text

    texts = [
        (behind_text if isinstance(state, State) else table_behind_text)(state, now_ns, most_ns)
        for state in _values(outcomes)
    ]
    lines = list(filter(None, texts))
    for line in lines:
        say(line)
    return bool(lines)


def _values(outcomes: Sequence[Outcome[Any]]) -> list[Any]:
    return [outcome.value for outcome in outcomes if outcome.value is not None]


def _shown(
    outcomes: Sequence[Outcome[Any]], *, behind: bool, top: int | None, is_table: bool
) -> Sequence[Outcome[Any]]:
    """The states to show; for `behind`, `top` or a table of many, the most urgent first, which errors are."""
    from retention.inspect.lag import urgency

    if not behind and top is None and (len(outcomes) <= MOST_BLOCKS or not is_table):
        return outcomes
    ordered = sorted(outcomes, key=lambda outcome: urgency(_lag(outcome.value)))
    return [outcome for outcome in ordered if not behind or _is_behind(outcome.value)][:top]


def _is_behind(state: State | TableState | None) -> bool:
    lag = _lag(state)
    return lag is None or lag.messages > 0


def _lag(state: State | TableState | None) -> Lag | None:
    from retention.inspect.lag import table_lag
    from retention.inspect.state import State

    if isinstance(state, State):
        return state.lag
    return None if state is None else table_lag(state)


def _put_table_of(states: Sequence[State], *, due: bool) -> None:
    if states and due:
        _put_due(states)
    elif states:
        _put_states(states)
        _put_partitions(states)


def _worth_a_row(states: list[State]) -> list[State]:
    """The states to show; if there are many, only those of streams that have messages, or lag."""
    if len(states) <= MOST_BLOCKS:
        return states
    return [state for state in states if state.messages or _is_behind(state)]


def _put_sum(states: Sequence[State]) -> None:
    from retention.views.text import states_text

    put_lines([states_text(states)])


def _put_partitions(states: Sequence[State]) -> None:
    from retention.views.text_topic import PARTITION_HEAD, partition_rows

    rows = [
        (stream_state.stream, *row)
        for stream_state in states
        if stream_state.topic is not None
        for row in partition_rows(stream_state.topic)
    ]
    if rows:
        put_table(("TOPIC", *PARTITION_HEAD), rows, PARTITION_HEAD)


def _put_writers(warehouse: Warehouse, states: Sequence[State]) -> None:
    rows = [
        (stream_state.stream, writer, f"{batch:,}")
        for stream_state in states
        for writer, batch in warehouse.log(stream_state.stream).last_batches().items()
    ]
    put_table(("STREAM", "WRITER", "LAST BATCH"), rows, ("LAST BATCH",))


def _consumers(warehouse: Warehouse, stream: str) -> list[ConsumerInfo]:
    from retention.api.stream import Stream

    log = warehouse.log(stream)
    return log.consumers.list() if isinstance(log, Stream) else []


def _put_states(states: Sequence[State]) -> None:
    from retention.views.text_states import STATE_NUMBERS, state_notes, state_table

    head, rows = state_table(states)
    put_table(head, rows, STATE_NUMBERS, _SPARE)
    put_lines(state_notes(states))


def _put_states_of_tables(states: Sequence[TableState], *, due: bool) -> None:
    from retention.views.text_table import TABLE_HEAD, table_due_lines, table_row

    for table in states if due else ():
        put_report([table.table, *(f"  {line}" for line in table_due_lines(table.ahead))])
    if states and not due:
        put_table(TABLE_HEAD, map(table_row, states), TABLE_HEAD[1:4], ("LOCATION", "FROM", "TO"))


def _put_due(states: Sequence[State]) -> None:
    from retention.views.text_forecast import due_lines

    for stream_state in states:
        put_report([stream_state.stream])
        lines = due_lines(stream_state.forecast) or ["nothing is removed by time alone"]
        put_report(f"  {line}" for line in lines)


def _message_rows(tables: Iterable[pa.Table]) -> Iterator[str]:
    from retention.core import kv
    from retention.core.headers import marker_reasons
    from retention.core.payload_preview import preview

    for table in tables:
        for batch in table.select(_SHOWN).to_batches():
            operations = kv.operations(batch["headers"]).to_pylist()
            reasons = marker_reasons(batch["headers"]).to_pylist()
            for row, operation, reason in zip(batch.to_pylist(), operations, reasons, strict=True):
                time = format_instant(row["ts_ns"])
                what = operation if reason is None else f"delete marker ({reason})"
                about = f"{row['subject']}  {what}  {row['size']:,} B"
                yield f"{row['seq']:>10,}  {time:<30}  {about}  {preview(row['payload'])}"


def _as_array(lines: Iterable[str]) -> Iterator[str]:
    before = "["
    for line in lines:
        yield before + line
        before = ","
    yield "]" if before == "," else "[]"
