"""The metrics file of a run: the measures of its streams, in a file for a collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from retention.api.warehouse import Warehouse
from retention.core.outcomes import Outcome, ask_concurrently
from retention.storage import files
from retention.storage.outputs import check_output, is_stream, write_output
from retention.storage.places import place_of
from retention.views.metrics import METRICS_FILE, CommandRun, metrics_text

if TYPE_CHECKING:
    from retention.inspect.measures import Measures


def write_metrics(
    path: str, run: CommandRun, warehouse: Warehouse | None, say: Callable[[str], None]
) -> None:
    """Measure the streams of a run, and replace the metrics file atomically.

    Args:
        path: the file, a path or an `s3://` location.
        run: the run, without measures.
        warehouse: the warehouse of its streams; None: the run ended before it was opened.
        say: receives a sentence for each processed stream that could not be measured.

    Raises:
        UsageError: the file exists and does not contain metrics.
        StorageError: the file cannot be written.
    """
    check_output(path, METRICS_FILE)
    if warehouse is not None:
        measured = _measured(warehouse, run.outcomes, run.ended_ns)
        failed = {outcome.stream for outcome in run.outcomes if outcome.error is not None}
        for outcome in measured:
            if outcome.error is not None and outcome.stream not in failed:
                say(f"{path} lacks measures of {outcome.sentence}")
        values = {outcome.stream: outcome.value for outcome in measured if outcome.value}
        run = _with_listings(replace(run, measures=values), warehouse)
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
    warehouse: Warehouse, outcomes: Sequence[Outcome[object]], as_of_ns: int
) -> list[Outcome[Measures]]:
    from retention.inspect.measures import measure

    return ask_concurrently(
        [outcome.stream for outcome in outcomes],
        lambda name: measure(warehouse.log(name).opened, as_of_ns),
        warehouse.clock,
        files.read_parallelism(warehouse.location),
        "measuring streams",
    )
