"""Roll-ups (`Nats-Rollup`): the messages of the batch and of the stream that a batch's roll-ups replace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.position import Position
from retention.core import headers
from retention.engines.select import Engines
from retention.ingest.recorded_commit import Removal
from retention.planners.probe import StoredRows
from retention.planners.requests import RequestTable, plan_request
from retention.rules.requests import Rollup

NONE, SUBJECT, EVERYTHING = range(3)
"""The roll-up that a message requests: none, or one that replaces all older messages of its subject or of the stream.
"""


@dataclass(frozen=True)
class BatchRollUps:
    """Everything that the roll-ups of a batch replace together; only this is carried out."""

    superseded: np.ndarray
    """bool: messages of the batch that a later one in it replaces; they are never written."""
    stored: Rollup
    """The removal of stored messages."""

    @classmethod
    def of(cls, subjects: pa.ChunkedArray, kinds: np.ndarray) -> BatchRollUps:
        """Combine the roll-ups of messages in order.

        Subjects a, b, a with the kinds `NONE`, `NONE`, `SUBJECT`: the third replaces the first, and all stored messages
        on a.

        Args:
            subjects: each message's subject, as it is stored.
            kinds: the roll-up that each requests; `NONE` also for a message that is not stored.
        """
        if not kinds.any():
            return cls(np.zeros(len(kinds), dtype=bool), Rollup())
        encoded = subjects.combine_chunks().dictionary_encode()
        codes, rows = encoded.indices.to_numpy(), np.arange(len(kinds))
        asking = np.flatnonzero(kinds == SUBJECT)
        last = np.full(len(encoded.dictionary), -1)
        np.maximum.at(last, codes[asking], asking)
        everywhere = np.flatnonzero(kinds == EVERYTHING)
        replaced = (rows < last[codes]) | (rows < everywhere.max(initial=-1))
        named = encoded.dictionary.filter(pa.array(last >= 0)).to_pylist()
        return cls(replaced, Rollup(tuple(named), bool(len(everywhere))))


def asks_to_roll_up(blocks: pa.ChunkedArray) -> bool:
    """Whether one of some header blocks requests a roll-up."""
    return bool(pc.any(pc.match_substring(blocks, f"\r\n{headers.ROLLUP}:")).as_py())


def plan_older(
    opened: OpenedStream, position: Position, request: Rollup, run: tuple[str, int]
) -> Removal | None:
    """Plan the removal of the stored messages that roll-ups replace; None: nothing is replaced.

    Args:
        opened: the stream.
        position: the version that the batch commits on.
        request: the roll-up.
        run: the name and the instant of the run that removes the messages.

    Raises:
        DamagedError: a file that loses some of its messages cannot be read.
    """
    if request == Rollup():
        return None
    name, as_of_ns = run
    with Engines("local") as engines:
        rows = StoredRows(opened, engines)
        table = RequestTable(opened, position.snapshot, position.inventory, rows, as_of_ns)
        plan = plan_request(table, request)
    return None if plan.is_empty else Removal(name, plan)
