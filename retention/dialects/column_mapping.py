"""The mapping of a source's columns to those of a log, as a person says it: what is taken, in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from retention.core.subject_tokens import names_in
from retention.dialects.dialect import Dialect
from retention.errors import UsageError

WholeRow = Literal["all"]
"""The word by which the whole row is the payload."""
OFFSETS = ("kafka_offset", "offset", "seq", "sequence", "sequence_number", "_commit_version")
"""Columns that tell the order in which a source's rows were written, if they hold whole numbers."""
PARTITIONS = ("kafka_partition", "partition", "shard", "shard_id")
"""Columns of the parts in which offsets count each for itself."""
_TIME_NAME = re.compile(
    r"(?:^|_)(?:ts|time|timestamp|date|datetime|at|ms|us|ns|created|updated)(?:_|$)|(?i:time|timestamp)$|At$"
)


@dataclass(frozen=True)
class ColumnMapping:
    """The way from a source's rows to messages."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """A column of the log's dialect → the SQL expression for it; by default the source's column of that name."""
    order_by: tuple[str, ...] | None = None
    """The columns of the source by which rows get their sequences; None: `default_order`, if there is one."""
    where: str | None = None
    """An SQL condition; only rows for which it is true are taken."""
    tombstone: str | None = None
    """An SQL condition; rows for which it is true become deletions of their keys."""
    whole_row: bool = False
    """Whether the payload is the whole row as JSON."""

    def check(self, dialect: Dialect) -> None:
        """Refuse what cannot be said of a log.

        Raises:
            UsageError: a column that it does not have, an empty expression, two payloads, or deletions of a topic's
                keys.
        """
        for name, expression in self.columns.items():
            if name not in dialect.columns:
                raise UsageError(f"{name}: no such column; there are {', '.join(dialect.columns)}")
            if not expression.strip():
                raise UsageError(f"--column {name}: it needs an SQL expression; give {name}=SQL")
        if self.whole_row and "payload" in self.columns:
            raise UsageError(
                "--payload all and --column payload=SQL are two payloads; nothing was read; give one"
            )
        if self.tombstone is not None and dialect.is_topic:
            raise UsageError(
                "--tombstone: a topic has no keys that a message can delete; nothing was read; leave such rows out "
                "with --where"
            )

    def left_out(
        self, names: Sequence[str], dialect: Dialect, order_by: Iterable[str]
    ) -> list[str]:
        """The columns of a source that no message has anything of.

        Args:
            names: the source's columns.
            dialect: the log's.
            order_by: the columns that decide the order.
        """
        if self.whole_row:
            return []
        order = [*order_by]
        named = [*self.columns.values(), self.where or "", self.tombstone or "", *order]
        used = {name.lower() for name in order}.union(*map(names_in, named))
        used |= {name for name in dialect.columns if name not in self.columns}
        return [name for name in names if name.lower() not in used]


def refuse_sql(mapping: ColumnMapping) -> None:
    """Refuse what only Spark can do, of rows that this process holds.

    Raises:
        UsageError: there is some.
    """
    named = {"where": mapping.where, "tombstone": mapping.tombstone}
    if mapping.whole_row:
        named["payload"] = "all"
    given = [f"{name}={value!r}" for name, value in named.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)}: that is SQL, for Spark's frames alone; nothing was appended; filter the rows before, "
            "give deletions the header KV-Operation: DEL, or append a Spark DataFrame"
        )


def default_order(whole_numbers: Iterable[str]) -> tuple[str, ...]:
    """The columns by which rows of a source get their sequences if nobody says it; empty: by their times.

    Offsets count in each partition for itself, so that partitions go on side by side; within each its own order holds.

    Args:
        whole_numbers: the source's columns that hold whole numbers.
    """
    known = {name.lower(): name for name in whole_numbers}
    offset = next((known[name] for name in OFFSETS if name in known), None)
    if offset is None:
        return ()
    partition = next((known[name] for name in PARTITIONS if name in known), None)
    return (offset,) if partition is None else (offset, partition)


def time_candidates(times: Iterable[str], others: Iterable[str]) -> list[str]:
    """The columns of a source that may be the time of its messages.

    Args:
        times: columns that hold times or dates.
        others: columns that hold numbers or texts.
    """
    return [*times, *(name for name in others if _TIME_NAME.search(name))]
