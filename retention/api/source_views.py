"""The views of a stream that Spark reads as tables: chosen by options, planned without a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from retention.api.log import Log
from retention.api.source_options import LOG_OPTIONS, log_of
from retention.core.inventory import DataFile
from retention.core.message_filter import MessageFilter
from retention.core.units import parse_as_of
from retention.engines.spark.data_source import FilesPart, SourceView, TaskShare, rows_parts
from retention.errors import UsageError
from retention.inspect.messages import check_filter
from retention.schemas.files import FILE_STATS
from retention.schemas.messages import MESSAGES
from retention.schemas.plan import PLANNED_FILES
from retention.schemas.rule_names import RULE_NAMES
from retention.views.frames import HISTORY, table_of

_PLANNED = pa.schema([*PLANNED_FILES, *(pa.field(f"by_{rule}", pa.int64()) for rule in RULE_NAMES)])
"""The columns of `Actions.files_with_rules`."""
_TASK_BYTES = 128 << 20
_LEAST_TASK_BYTES = 8 << 20
_TASKS = 16
"""The number of tasks that a table is divided into, if they then read between the two numbers of bytes."""


@dataclass(frozen=True)
class MessagesView:
    """The live messages that a filter selects."""

    log: Log
    wanted: MessageFilter

    def columns(self) -> pa.Schema:
        """The columns of a message table."""
        return MESSAGES

    def parts(self, columns: pa.Schema) -> list[TaskShare]:
        """The files of the newest snapshot that may have wanted messages."""
        _refuse_others(self.log, "messages", columns, MESSAGES)
        files = self.wanted.files(_files(self.log))
        located = self.log.opened.store.data_files(files)
        shares = _shares(located, files["file_bytes"].to_pylist())
        return [FilesPart(share, self.wanted) for share in shares]


@dataclass(frozen=True)
class TableView:
    """A table that planning makes as a whole."""

    log: Log
    name: str
    make: Callable[[], pa.Table]
    shape: pa.Schema | None = None
    """Its columns; None: they depend on its rows, so that one may be missing by the time of reading."""

    def columns(self) -> pa.Schema:
        """The columns of the table at this moment."""
        return self.make().schema if self.shape is None else self.shape

    def parts(self, columns: pa.Schema) -> list[TaskShare]:
        """The rows at this moment."""
        table = self.make()
        if self.shape is not None:
            _refuse_others(self.log, self.name, columns, self.shape)
        return rows_parts(_conformed(table, columns))


def view_of(options: Mapping[str, str]) -> SourceView:
    """The view that the options of a reader name.

    Args:
        options: `warehouse` or `config`, `stream` or `path`, `view`, and those of the view.

    Raises:
        UsageError: an option is missing or wrong, or there is no such stream.
    """
    name = options.get("view", "messages")
    if name not in VIEWS:
        raise UsageError(
            f"{name!r}: there is no such view; the option `view` is {', '.join(VIEWS)}"
        )
    make, options_of_view = VIEWS[name]
    for option in options:
        if option not in (*_COMMON, *options_of_view):
            raise UsageError(
                f"the view {name} has no option `{option}`; it has {', '.join((*_COMMON, *options_of_view))}"
            )
    return make(log_of(options), options)


def _filter(log: Log, options: Mapping[str, str]) -> MessageFilter:
    subject = options.get("subject")
    check_filter(subject)
    numbers = {name: _number(name, options.get(name)) for name in _NUMBERS}
    now_ns = log.opened.clock()
    instants = {
        f"{name}_ns": parse_as_of(options[name], now_ns)
        for name in ("from", "to")
        if name in options
    }
    return MessageFilter(subject=subject, **numbers, **instants)


def _number(name: str, text: str | None) -> int | None:
    if text is None or (text.isdecimal() and int(text) < 2**63):
        return None if text is None else int(text)
    raise UsageError(f"the option `{name}` is a whole number from 0 on, not {text!r}")


_COMMON = (*LOG_OPTIONS, "view")
_NUMBERS = ("partition", "from_seq", "to_seq")
VIEWS: Mapping[str, tuple[Callable[[Log, Mapping[str, str]], SourceView], tuple[str, ...]]] = {
    "messages": (
        lambda log, options: MessagesView(log, _filter(log, options)),
        (*_NUMBERS, "subject", "from", "to"),
    ),
    "plan": (
        lambda log, options: TableView(
            log,
            "plan",
            lambda: log.plan(options.get("as_of")).plan.actions.files_with_rules,
            _PLANNED,
        ),
        ("as_of",),
    ),
    "history": (
        lambda log, _: TableView(log, "history", lambda: table_of(log.history(), HISTORY)),
        (),
    ),
    "state": (
        lambda log, options: TableView(
            log, "state", lambda: table_of([log.state(options.get("as_of")).as_json()])
        ),
        ("as_of",),
    ),
    "files": (lambda log, _: TableView(log, "files", lambda: _files(log), FILE_STATS), ()),
}
"""Name of a view → the view of a stream by its options, and the names of those options."""


def _files(log: Log) -> pa.Table:
    """The live files with their statistics, shape `FILE_STATS`."""
    store = log.opened.store
    if not store.exists():
        return FILE_STATS.empty_table()
    return store.inventory(store.snapshot()).files


def _shares(files: Sequence[DataFile], sizes: Sequence[int]) -> Iterator[tuple[DataFile, ...]]:
    """The files in order, in groups of about the same bytes."""
    limit = min(max(sum(sizes) // _TASKS, _LEAST_TASK_BYTES), _TASK_BYTES)
    share: list[DataFile] = []
    held = 0
    for file, size in zip(files, sizes, strict=True):
        if share and held + size > limit:
            yield tuple(share)
            share, held = [], 0
        share.append(file)
        held += size
    if share:
        yield tuple(share)


def _refuse_others(log: Log, view: str, wanted: pa.Schema, there: pa.Schema) -> None:
    for column in wanted:
        if column.name not in there.names:
            raise UsageError(
                f"{log.name}: the view {view} has no column {column.name}; it has {', '.join(there.names)}"
            )
        kind = there.field(column.name).type
        if kind != column.type:
            raise UsageError(
                f"{log.name}: the column {column.name} of the view {view} is {kind}, not {column.type}; "
                "request it as that, or leave the schema out"
            )


def _conformed(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """The table with the requested columns, nulls in those that it lacks."""
    return pa.table(
        [
            table[column.name].cast(column.type)
            if column.name in table.schema.names
            else pa.nulls(table.num_rows, column.type)
            for column in columns
        ],
        schema=columns,
    )
