"""The order of all checks, each based on the ones before: machine, configuration, location, streams, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from retention.api.unlisted import UnlistedFinding, unlisted_finding
from retention.api.warehouse import Warehouse
from retention.config import Config
from retention.config.discovery import no_streams
from retention.core.wording import counted
from retention.doctor.finding import Finding, ok, problem, problem_of_error, warning
from retention.doctor.machine import check_machine
from retention.doctor.place import check_names, check_place
from retention.doctor.streams import check_stream
from retention.doctor.tables import check_table
from retention.errors import NoConfigError, RetentionError
from retention.storage import files


def examine(
    open_it: Callable[[], Warehouse], names: Sequence[str] = (), tags: Sequence[str] = ()
) -> Iterator[Finding]:
    """Check the machine, a warehouse, its streams and its tables in place (all, if none is named).

    Args:
        open_it: opens the warehouse; an invalid configuration is a finding.
        names: the streams and tables to check, names and patterns.
        tags: checks only streams and tables with one of them.

    Raises:
        UsageError: there is no such warehouse, configuration, stream or table.
    """
    try:
        warehouse = open_it()
        known = warehouse.streams()
    except NoConfigError:
        raise
    except RetentionError as error:
        yield from check_machine(warning)
        yield problem_of_error("configuration", error)
        return
    chosen, tables = warehouse.chosen_with_tables(names, tags, known)
    for name in set(chosen) - set(known):
        warehouse.log(name)  # raises the error of every command for an unknown stream
    on_s3 = files.is_remote(warehouse.location)
    yield from check_machine(problem if _needs_spark(warehouse) else warning, on_s3=on_s3)
    yield ok("configuration", f"says what {_listed(warehouse.config)}")
    yield from check_place(warehouse.location, warehouse.clock)
    yield from check_names(warehouse.location, known)
    if not known and not warehouse.tables():
        yield ok("streams", no_streams(warehouse.location))
    unlisted = unlisted_finding(warehouse, names, tags)
    for name in chosen:
        if name in unlisted.names:
            yield _unlisted(unlisted.of(name))
        yield from _of_stream(warehouse, name)
    for name in tables:
        yield from check_table(warehouse.table(name).opened)


def _listed(config: Config) -> str:
    """The numbers of streams and tables, as the subject of "keep"."""
    streams, tables = len(config.streams), len(config.tables)
    if not tables:
        return counted(streams, "stream keeps", "streams keep")
    if not streams:
        return counted(tables, "table keeps", "tables keep")
    return f"{counted(streams, 'stream')} and {counted(tables, 'table')} keep"


def _of_stream(warehouse: Warehouse, name: str) -> Iterator[Finding]:
    try:
        opened = warehouse.log(name).opened
    except RetentionError as error:
        yield problem_of_error("stream", error, name)
    else:
        yield from check_stream(opened)


def _unlisted(finding: UnlistedFinding) -> Finding:
    finding_of = problem if finding.exit_code else warning
    return finding_of("configuration", finding.detail, finding.remedy, finding.names[0])


def _needs_spark(warehouse: Warehouse) -> bool:
    config = warehouse.config
    engines = [warehouse.engine or each.engine for each in (*config.streams, *config.tables)]
    return "spark" in engines
