"""A server's account of a backup: what its `state.json` says, and how the messages of the archive differ from that.

The server writes the account first and the messages after it, while the stream goes on: what limits, TTLs, acks and
deletes take in between is in the account and not in the archive. RESTORE (2.15.1) compares neither count nor bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.message_rows import Storage, message_sizes
from retention.core.wording import counted
from retention.errors import DamagedError
from schemas.bounds import MAX_SEQ, MAX_TABLE_BYTES

STATE = "state.json"
"""The name of the account in an archive."""
AGAIN = "nothing was imported; make or copy the backup again"
"""The remedy for an archive that cannot be read, or that no server restores."""

NUMBERS = ("messages", "bytes", "first_seq", "last_seq")
"""The numbers that an account has to have."""
_STORAGES: tuple[Storage, ...] = ("file", "memory")
_BOUNDS = {
    "messages": (MAX_SEQ, "2^62"),
    "bytes": (MAX_TABLE_BYTES, "2^62"),
    "first_seq": (MAX_SEQ + 1, "2^62 + 1"),
    "last_seq": (MAX_SEQ, "2^62"),
}


@dataclass
class Totals:
    """Totals of the messages of a backup."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    bytes: dict[Storage, int] = field(default_factory=lambda: dict.fromkeys(_STORAGES, 0))
    """Bytes by the accounting of either storage."""

    def add(self, rows: pa.Table) -> None:
        """Count one more table with the columns of `RAW_ROWS`, which holds at least one row."""
        self.first_seq = self.first_seq or rows["seq"][0].as_py()
        self.last_seq = rows["seq"][-1].as_py()
        self.messages += rows.num_rows
        for storage in _STORAGES:
            counted = message_sizes(rows["subject"], rows["headers"], rows["payload"], storage)
            self.bytes[storage] += pc.sum(counted).as_py()


@dataclass(frozen=True)
class Difference:
    """A number of which the account says something else than the messages."""

    name: str
    """One of `NUMBERS`."""
    stated: int
    """By the account."""
    held: int
    """By the messages of the archive."""

    def __str__(self) -> str:
        return f"{self.name} is {self.stated} in {STATE} and {self.held} in the archive"


def check_account(path: Path, state: Mapping[str, Any], consumers: int) -> None:
    """Check an account by itself, as RESTORE does before it takes any message.

    Args:
        path: the archive.
        state: its account, which has all `NUMBERS` as integers.
        consumers: the number of consumers in the archive.

    Raises:
        DamagedError: a table cannot hold a number, or RESTORE refuses the account.
    """
    for name, (most, bound) in _BOUNDS.items():
        if not 0 <= state[name] <= most:
            raise DamagedError(
                f"{path}: {name} is {state[name]} in {STATE}, and a table holds 0 to {bound}; nothing was imported; "
                "if the broker says so, too, copy its messages into another stream and back that one up"
            )
    messages, first, last = (state[name] for name in ("messages", "first_seq", "last_seq"))
    never_written = (messages, first, last) == (0, 0, 0)
    if not never_written and (first == 0 or first > last + 1 or messages > last + 1 - first):
        raise DamagedError(
            f"{path}: {STATE} says {counted(messages, 'message')} in sequences {first} to {last}, which no stream has "
            f"and no server restores; {AGAIN}"
        )
    listed = state.get("consumer_count", 0)
    if listed != consumers:
        raise DamagedError(
            f"{path}: consumer_count is {listed} in {STATE}, and {consumers} are in the archive, which no server "
            f"restores; {AGAIN}"
        )


def differences(
    state: Mapping[str, Any], totals: Totals, storage: Storage
) -> tuple[Difference, ...]:
    """The numbers in which an account and the messages of its archive differ.

    Args:
        state: the account.
        totals: of the messages.
        storage: the storage whose accounting the bytes of the account are by.
    """
    compared = (
        ("messages", state["messages"], totals.messages),
        ("first_seq", state["first_seq"] if totals.messages else 0, totals.first_seq),
        ("last_seq", state["last_seq"], max(state["last_seq"], totals.last_seq)),
        ("bytes", state["bytes"], totals.bytes[storage]),
    )
    return tuple(
        Difference(name, stated, held) for name, stated, held in compared if stated != held
    )


def refuse_other_storage(
    path: Path, differing: Sequence[Difference], totals: Totals, storage: Storage
) -> None:
    """Refuse an archive of which nothing is missing, and whose bytes are those of another storage.

    Raises:
        DamagedError: with the storage that the stream is to have in its configuration.
    """
    if [difference.name for difference in differing] != ["bytes"]:
        return
    for other in _STORAGES:
        if other != storage and totals.bytes[other] == differing[0].stated:
            hint = f"the bytes fit storage: {other}, set that for the stream"
            raise DamagedError(f"{path}: {differing[0]}; {AGAIN}; {hint}")


def refuse_differences(path: Path, differing: Sequence[Difference]) -> None:
    """Refuse an archive whose account and messages differ.

    Raises:
        DamagedError: there is a difference.
    """
    if differing:
        raise DamagedError(
            f"{path}: {'; '.join(map(str, differing))}; nothing was imported; back the stream up when nothing is "
            "removed from it, or import without --strict, as a server restores"
        )
