"""Consumers as charts: the messages that each still needs, and those that are held back for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from retention.core.wording import counted
from retention.inspect.consumers import ConsumerInfo
from retention.plan.protected import ProtectedMessages
from retention.plots.charts import Chart, Panel, Rows, Series
from retention.plots.plan import LONGEST_NAME
from retention.plots.wording import short_name, short_number

MOST_ROWS = 30
LONGEST_ROW = 18


def consumers_chart(
    stream: str, infos: Sequence[ConsumerInfo], held: ProtectedMessages | None
) -> Chart:
    """The consumers of a stream as a chart, the one that holds back most first.

    Args:
        stream: its name.
        infos: its consumers.
        held: what a pass would hold back for them; None: the stream protects no consumers.
    """
    name = short_name(stream, LONGEST_NAME)
    if not infos:
        return Chart(f"{name}: no consumers", "No consumer needs any of its messages.")
    for_consumer = _held_for(held)

    def needs(info: ConsumerInfo) -> tuple[int, int, str]:
        return -for_consumer.get(info.name, 0), -info.num_pending - info.num_ack_pending, info.name

    order = sorted(infos, key=needs)
    shown, rest = order[:MOST_ROWS], order[MOST_ROWS:]
    waiting = np.array([float(info.num_pending) for info in shown])
    pending = np.array([float(info.num_ack_pending) for info in shown])
    panels = [
        Panel(
            "still needed",
            (Series("not acknowledged", pending), Series("not delivered", waiting)),
            short_number,
        )
    ]
    if held is not None:
        kept = np.array([float(for_consumer.get(info.name, 0)) for info in shown])
        panels.append(Panel("held back", (Series("held back", kept),), short_number))
    rows = Rows(tuple(short_name(info.name, LONGEST_ROW) for info in shown), tuple(panels))
    return Chart(f"{name}: {_most(order[0], for_consumer)}", _caption(held, len(rest)), (rows,))


def _held_for(held: ProtectedMessages | None) -> dict[str, int]:
    """Consumer → the messages held back for it."""
    numbers: dict[str, int] = {}
    for entry in () if held is None else held.by_consumer:
        numbers[entry.consumer] = numbers.get(entry.consumer, 0) + entry.messages
    return numbers


def _most(first: ConsumerInfo, for_consumer: dict[str, int]) -> str:
    name, number = short_name(first.name, LONGEST_NAME), for_consumer.get(first.name, 0)
    if number:
        return f"{counted(number, 'message is', 'messages are')} held back for {name}"
    needed = first.num_pending + first.num_ack_pending
    return (
        f"{name} still needs {counted(needed, 'message')}" if needed else "every consumer is done"
    )


def _caption(held: ProtectedMessages | None, rest: int) -> str:
    texts = ["Messages that each consumer still needs"]
    if held is not None:
        verb = (
            "are held back"
            if held.action == "hold"
            else "would be held back, were the action not warn"
        )
        texts.append(f"and those due to be removed that {verb} for it")
    more = f" {counted(rest, 'more consumer is', 'more consumers are')} not shown." if rest else ""
    return f"{', '.join(texts)}.{more}"
