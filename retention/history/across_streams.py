"""The runs of several streams in one order, newest first."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from operator import itemgetter

from retention.core.run_names import started_ns
from retention.history.record import RunRecord
from retention.history.runs import history_of


def runs_of(warehouse: str, streams: Iterable[str]) -> list[RunRecord]:
    """The outcomes of runs on several streams, newest first; each names its stream.

    Raises:
        DamagedError: a record cannot be read.
    """
    dated: list[tuple[int, RunRecord]] = []
    for name in streams:
        newer_ns = sys.maxsize
        for record in history_of(warehouse, name).outcomes():
            # A run with a name in the future, from a wrong clock, precedes its successor.
            newer_ns = min(newer_ns, started_ns(record.run, newer_ns))
            dated.append((newer_ns, record.updated(stream=name)))
    return [record for _, record in sorted(dated, key=itemgetter(0), reverse=True)]
