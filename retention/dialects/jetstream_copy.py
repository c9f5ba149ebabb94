"""The rules for a copy of a server's stream: rows of a DataFrame keep the sequences and times that the server gave."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.core import message_rows
from retention.dialects import jetstream
from retention.dialects.arriving_rows import ArrivingRows, with_columns
from retention.dialects.dialect import Share
from retention.errors import RefusedError, UsageError

CREATED = "created"
"""The column, text, with the creation time of a row's stream as its server writes it: the stream's identity."""
WRITTEN = pa.schema([pa.field("seq", pa.int64()), *jetstream.WRITTEN])
_REQUIRED = ("seq", "ts_ns", "subject", "payload")


@dataclass(frozen=True)
class JetStreamCopy(jetstream.JetStream):
    """The rules of one copy."""

    order: tuple[str, ...] = ("seq",)
    written: pa.Schema = WRITTEN
    also_narrow: tuple[str, ...] = ("seq",)

    def completed(self, rows: pa.Table, share: Share, at: int) -> pa.Table:
        """The stored rows of a share, shape `FILE_COLUMNS`; what a server stores is never malformed here."""
        return message_rows.complete_rows(rows, self.storage)


@dataclass(frozen=True)
class CopiedRows(ArrivingRows):
    """The check of rows on arrival in tasks; all of them have times, so that `now_ns` and `times` do not matter."""

    created: str = ""
    """The creation time of the stream whose rows they have to be."""

    def filled(self, given: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the columns `Dialect.written`.

        Raises:
            RefusedError: a row is of another stream.
            UsageError: a row lacks a value that each message has, or its sequence is below 1.
        """
        for name in (*_REQUIRED, CREATED):
            if given[name].null_count:
                raise UsageError(
                    f"a row of the frame has no {name}; {_NOTHING}; give the rows of the format nats unchanged"
                )
        others = given[CREATED].filter(pc.not_equal(given[CREATED], self.created))
        if len(others):
            raise RefusedError(
                f"the frame has rows of a stream that was created at {others[0].as_py()}, and the one that `sync` "
                f"names was created at {self.created}; {_NOTHING}; read the stream that `sync` names, and do not "
                "cache frames while a stream is made anew"
            )
        if pc.any(pc.less(given["seq"], 1), min_count=0).as_py():
            raise UsageError(
                f"a row of the frame has sequence {pc.min(given['seq'])}, and sequences begin at 1; {_NOTHING}; give "
                "the rows of the format nats unchanged"
            )
        return with_columns(given, self.dialect.written)


_NOTHING = "nothing was copied"
