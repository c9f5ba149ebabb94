"""The order of all checks, each based on the ones before: machine, configuration, location, streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from retention.api.unlisted import UnlistedFinding, unlisted_finding
from retention.api.warehouse import Warehouse
from retention.config.discovery import no_streams
from retention.core.wording import counted
from retention.doctor.finding import Finding, ok, problem, problem_of_error, warning
from retention.doctor.machine import check_machine
from retention.doctor.place import check_names, check_place
from retention.doctor.streams import check_stream
from retention.errors import NoConfigError, RetentionError
from retention.storage import files


def examine(
    open_it: Callable[[], Warehouse], names: Sequence[str] = (), tags: Sequence[str] = ()
) -> Iterator[Finding]:
    """Check the machine, a warehouse and its streams (all, if none is named).

    Args:
        open_it: opens the warehouse; an invalid configuration is a finding.
        names: the streams to check, names and patterns.
        tags: checks only streams with one of them.

    Raises:
        UsageError: there is no such warehouse, configuration or stream.
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
    chosen = warehouse.chosen(names, tags, known)
    for name in set(chosen) - set(known):
        warehouse.log(name)  # raises the error of every command for an unknown stream
    on_s3 = files.is_remote(warehouse.location)
    yield from check_machine(problem if _needs_spark(warehouse) else warning, on_s3=on_s3)
    count = len(warehouse.config.streams)
    yield ok("configuration", f"says what {counted(count, 'stream keeps', 'streams keep')}")
    yield from check_place(warehouse.location, warehouse.clock)
    yield from check_names(warehouse.location, known)
    if not known:
        yield ok("streams", no_streams(warehouse.location))
    unlisted = unlisted_finding(warehouse, names, tags)
    for name in chosen:
        if name in unlisted.names:
            yield _unlisted(unlisted.of(name))
        yield from _of_stream(warehouse, name)


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
    engines = [warehouse.engine or stream.engine for stream in warehouse.config.streams]
    return "spark" in engines
