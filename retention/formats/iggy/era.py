"""Era of a log: the format of the servers that wrote it, as far as reading needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from retention.formats.iggy.messages import Messages

EraName = Literal["0.8", "0.9"]

TORN = "the log ends within it"
CHECKSUM = "its checksum is wrong"


@dataclass(frozen=True)
class WholeRecords:
    """The whole records at the beginning of a window, up to the first that is wrong or incomplete."""

    messages: Messages
    end: int
    """End of the records in the window."""
    problem: str | None = None
    """Problem of the record that follows; None: none is known."""
    wants: int = 0
    """Bytes to read of the record that follows, where the window ends within it; else 0."""


class Era(Protocol):
    """Log format of the servers of one era: one record behind the other, a message or a batch of messages each."""

    @property
    def name(self) -> EraName:
        """Name, as `--era` takes it."""

    @property
    def header_bytes(self) -> int:
        """Bytes of a record's header, which has its length and its offset."""

    @property
    def is_gapless(self) -> bool:
        """Whether the offsets of a log have no gaps, so that the place of a record determines its offset."""

    def take(self, window: bytes, left: int) -> WholeRecords:
        """Take the records at the beginning of a window, and compare their checksums.

        Args:
            window: bytes of the log from the beginning of a record on.
            left: number of bytes from there to the end of the log, which may lie behind the window.
        """

    def length_and_offset(self, header: bytes) -> tuple[int, int] | None:
        """Read length and offset in a record's header, true or not; None where there can be no record."""

    def candidates(self, window: bytes, low: int, high: int) -> np.ndarray:
        """Find the places, rising, of all records with an offset from `low` to before `high`, and few others."""

    def is_sound(self, record: bytes) -> bool:
        """Whether the checksum of a record holds; in 0.9 that of the batch."""
