"""The operator's mapping of a source's columns to those of a log: expressions, conditions and order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from retention.core.subject_tokens import names_in
from retention.dialects.dialect import Dialect
from retention.errors import UsageError

WholeRow = Literal["all"]
"""The word that makes the whole row the payload."""
OFFSETS = ("kafka_offset", "offset", "seq", "sequence", "sequence_number", "_commit_version")
"""Columns with the write order of a source's rows, if they are integers."""
PARTITIONS = ("kafka_partition", "partition", "shard", "shard_id")
"""Columns of partitions with offsets of their own."""
_TIME_NAME = re.compile(
    r"(?:^|_)(?:ts|time|timestamp|date|datetime|at|ms|us|ns|created|updated)(?:_|$)|(?i:time|timestamp)$|At$"
)


@dataclass(frozen=True)
class ColumnMapping:
    """The mapping of a source's rows to messages."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """A column of the log's dialect → its SQL expression; the default is the source's column of that name."""
    order_by: tuple[str, ...] | None = None
    """The columns of the source that order rows for their sequences; None: `default_order`, if there is one."""
    where: str | None = None
    """An SQL condition; only rows that meet it are taken."""
    tombstone: str | None = None
    """An SQL condition; rows that meet it become deletions of their keys."""
    whole_row: bool = False
    """Whether the payload is the whole row as JSON."""

    def check(self, dialect: Dialect) -> None:
        """Refuse a mapping that does not fit a log.

        Raises:
            UsageError: an unknown column, an empty expression, two payloads, or deletions of a
                topic's keys.
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
        """The columns of a source that no message uses.

        Args:
            names: the source's columns.
            dialect: the log's dialect.
            order_by: the columns of the order.
        """
        if self.whole_row:
            return []
        order = [*order_by]
        named = [*self.columns.values(), self.where or "", self.tombstone or "", *order]
        used = {name.lower() for name in order}.union(*map(names_in, named))
        used |= {name for name in dialect.columns if name not in self.columns}
        return [name for name in names if name.lower() not in used]


def refuse_sql(mapping: ColumnMapping) -> None:
    """Refuse SQL for rows in this process, because only Spark can evaluate it.

    Raises:
        UsageError: the mapping has SQL.
    """
    named = {"where": mapping.where, "tombstone": mapping.tombstone}
    if mapping.whole_row:
        named["payload"] = "all"
    given = [f"{name}={value!r}" for name, value in named.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)}: that is SQL, which only Spark's frames support; nothing was appended; filter the "
            "rows before, give deletions the header KV-Operation: DEL, or append a Spark DataFrame"
        )


def default_order(whole_numbers: Iterable[str]) -> tuple[str, ...]:
    """The default order of a source's rows for their sequences; empty: by their times.

    Each partition has its own offsets, so partitions interleave; the order within each is kept.

    Args:
        whole_numbers: the source's integer columns.
    """
    known = {name.lower(): name for name in whole_numbers}
    offset = next((known[name] for name in OFFSETS if name in known), None)
    if offset is None:
        return ()
    partition = next((known[name] for name in PARTITIONS if name in known), None)
    return (offset,) if partition is None else (offset, partition)


def time_candidates(times: Iterable[str], others: Iterable[str]) -> list[str]:
    """The columns of a source that may have the time of its messages.

    Args:
        times: columns of timestamps or dates.
        others: columns of numbers or texts.
    """
    return [*times, *(name for name in others if _TIME_NAME.search(name))]
