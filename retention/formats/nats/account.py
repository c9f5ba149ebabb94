"""The account of a backup in its `state.json`, and its differences from the messages of the archive.

The server writes the account first and the messages after it, while the stream continues. Messages that limits, TTLs,
acks and deletes remove in between are in the account but not in the archive. RESTORE (2.15.1) compares neither count
nor bytes.
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
from retention.schemas.bounds import MAX_SEQ, MAX_TABLE_BYTES

STATE = "state.json"
"""The name of the account in an archive."""
AGAIN = "nothing was imported; make or copy the backup again"
"""The remedy for an archive that cannot be read or that no server restores."""

NUMBERS = ("messages", "bytes", "first_seq", "last_seq")
"""The required numbers of an account."""
_STORAGES: tuple[Storage, ...] = ("file", "memory")
_BOUNDS = {
    "messages": (MAX_SEQ, "2^62"),
    "bytes": (MAX_TABLE_BYTES, "2^62"),
    "first_seq": (MAX_SEQ + 1, "2^62 + 1"),
    "last_seq": (MAX_SEQ, "2^62"),
}


@dataclass
class BackupTotals:
    """The totals of the messages of a backup."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    bytes: dict[Storage, int] = field(default_factory=lambda: dict.fromkeys(_STORAGES, 0))
    """Bytes by the accounting of each storage."""

    def add(self, rows: pa.Table) -> None:
        """Count one more nonempty table with the columns of `RAW_ROWS`."""
        self.first_seq = self.first_seq or rows["seq"][0].as_py()
        self.last_seq = rows["seq"][-1].as_py()
        self.messages += rows.num_rows
        for storage in _STORAGES:
            counted = message_sizes(rows["subject"], rows["headers"], rows["payload"], storage)
            self.bytes[storage] += pc.sum(counted).as_py()


@dataclass(frozen=True)
class AccountDifference:
    """A number that differs between the account and the messages."""

    name: str
    """One of `NUMBERS`."""
    stated: int
    """The number in the account."""
    held: int
    """The number from the messages of the archive."""

    def __str__(self) -> str:
        return f"{self.name} is {self.stated} in {STATE} and {self.held} in the archive"


def check_account(path: Path, state: Mapping[str, Any], consumers: int) -> None:
    """Check an account without its messages, as RESTORE does before it reads any message.

    Args:
        path: the archive.
        state: its account, with all `NUMBERS` as integers.
        consumers: the number of consumers in the archive.

    Raises:
        DamagedError: a number does not fit a table, or RESTORE refuses the account.
    """
    for name, (most, bound) in _BOUNDS.items():
        if not 0 <= state[name] <= most:
            raise DamagedError(
                f"{path}: {name} is {state[name]} in {STATE}, and a table allows 0 to {bound}; nothing was imported; "
                "if the broker says the same, copy its messages into another stream and back that one up"
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
    state: Mapping[str, Any], totals: BackupTotals, storage: Storage
) -> tuple[AccountDifference, ...]:
    """The differences between an account and the messages of its archive.

    Args:
        state: the account.
        totals: the totals of the messages.
        storage: the storage with the accounting of the account's bytes.
    """
    compared = (
        ("messages", state["messages"], totals.messages),
        ("first_seq", state["first_seq"] if totals.messages else 0, totals.first_seq),
        ("last_seq", state["last_seq"], max(state["last_seq"], totals.last_seq)),
        ("bytes", state["bytes"], totals.bytes[storage]),
    )
    return tuple(
        AccountDifference(name, stated, held) for name, stated, held in compared if stated != held
    )


def refuse_other_storage(
    path: Path, differing: Sequence[AccountDifference], totals: BackupTotals, storage: Storage
) -> None:
    """Refuse a complete archive if its bytes match another storage.

    Raises:
        DamagedError: names the storage to configure for the stream.
    """
    if [difference.name for difference in differing] != ["bytes"]:
        return
    for other in _STORAGES:
        if other != storage and totals.bytes[other] == differing[0].stated:
            hint = f"the bytes fit storage: {other}, set that for the stream"
            raise DamagedError(f"{path}: {differing[0]}; {AGAIN}; {hint}")


def refuse_differences(path: Path, differing: Sequence[AccountDifference]) -> None:
    """Refuse an archive with differences between account and messages.

    Raises:
        DamagedError: there is a difference.
    """
    if differing:
        raise DamagedError(
            f"{path}: {'; '.join(map(str, differing))}; nothing was imported; back the stream up when nothing is "
            "removed from it, or import without --strict, as a server restores"
        )
