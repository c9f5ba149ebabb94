"""The metrics file of a run: the measures of its streams and tables, in a file for a collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from retention.api.warehouse import Warehouse
from retention.core.outcomes import Outcome, ask_concurrently
from retention.storage import files
from retention.storage.outputs import check_output, is_stream, write_output
from retention.storage.places import place_of
from retention.views.metrics import METRICS_FILE, CommandRun, metrics_text

if TYPE_CHECKING:
    from retention.inspect.measures import Measures, TableMeasures

Of = TypeVar("Of")


def write_metrics(
    path: str, run: CommandRun, warehouse: Warehouse | None, say: Callable[[str], None]
) -> None:
    """Measure the streams and tables of a run, and replace the metrics file atomically.

    Args:
        path: the file, a path or an `s3://` location.
        run: the run, without measures.
        warehouse: the warehouse of its streams and tables; None: the run ended before it was opened.
        say: receives a sentence for each processed stream or table that could not be measured.

    Raises:
        UsageError: the file exists and does not contain metrics.
        StorageError: the file cannot be written.
    """
    check_output(path, METRICS_FILE)
    if warehouse is not None:
        of_streams, of_tables = _measured(warehouse, run)
        processed = [*run.outcomes, *run.tables]
        failed = {outcome.stream for outcome in processed if outcome.error is not None}
        measured: list[Outcome[Any]] = [*of_streams, *of_tables]
        for outcome in measured:
            if outcome.error is not None and outcome.stream not in failed:
                say(f"{path} lacks measures of {outcome.sentence}")
        known = replace(run, measures=_values(of_streams), table_measures=_values(of_tables))
        run = _with_listings(known, warehouse)
    before = b"" if is_stream(path) else files.read_bytes(place_of(path)) or b""
    text = metrics_text(run, before.decode("utf-8", "replace"))
    write_output(path, METRICS_FILE, text.encode())


def _with_listings(run: CommandRun, warehouse: Warehouse) -> CommandRun:
    """The run, with the streams among its outcomes that no configuration lists any more."""
    names = {outcome.stream for outcome in run.outcomes}
    unlisted = warehouse.unlisted(names) if names else []
    if warehouse.config.unlisted == "keep":
        return replace(run, unreported=unlisted)
    return replace(run, unlisted=[*run.unlisted, *unlisted])


def _measured(
    warehouse: Warehouse, run: CommandRun
) -> tuple[list[Outcome[Measures]], list[Outcome[TableMeasures]]]:
    """The measures of the streams of a run, and of its tables."""
    from retention.inspect.measures import measure, measure_table

    ended_ns = run.ended_ns

    def ask(
        nouns: str, outcomes: Sequence[Outcome[object]], measured: Callable[[str], Of]
    ) -> list[Outcome[Of]]:
        return ask_concurrently(
            [outcome.stream for outcome in outcomes],
            measured,
            warehouse.clock,
            files.streams_at_once(warehouse.location),
            f"measuring {nouns}",
        )

    return (
        ask("streams", run.outcomes, lambda name: measure(warehouse.log(name).opened, ended_ns)),
        ask(
            "tables", run.tables, lambda name: measure_table(warehouse.table(name).opened, ended_ns)
        ),
    )


def _values(outcomes: Sequence[Outcome[Of]]) -> dict[str, Of]:
    return {outcome.stream: outcome.value for outcome in outcomes if outcome.value is not None}
