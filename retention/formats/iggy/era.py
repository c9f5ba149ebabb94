"""The era of a log: the format of the servers that wrote it, for reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from retention.formats.iggy.messages import MessageColumns

EraName = Literal["0.8", "0.9"]

TORN = "the log ends within it"
CHECKSUM = "its checksum is wrong"


@dataclass(frozen=True)
class WholeRecords:
    """The complete records at the beginning of a window, up to the first invalid or incomplete one."""

    messages: MessageColumns
    end: int
    """The end of the records in the window."""
    problem: str | None = None
    """The problem of the following record; None if none is known."""
    wants: int = 0
    """The bytes to read for the following record if the window ends within it; otherwise 0."""


class Era(Protocol):
    """The log format of the servers of one era: consecutive records, each a message or a batch of messages."""

    @property
    def name(self) -> EraName:
        """The name, as in `--era`."""

    @property
    def header_bytes(self) -> int:
        """The bytes of a record's header, which has its length and its offset."""

    @property
    def is_gapless(self) -> bool:
        """Whether the offsets of a log have no gaps, so that a record's position determines its offset."""

    def take(self, window: bytes, left: int) -> WholeRecords:
        """Read the records at the beginning of a window, and compare their checksums.

        Args:
            window: bytes of the log from the beginning of a record on.
            left: the number of bytes from there to the end of the log, which may be after the window.
        """

    def length_and_offset(self, header: bytes) -> tuple[int, int] | None:
        """The unverified length and offset in a record's header; None if there can be no record."""

    def candidates(self, window: bytes, low: int, high: int) -> np.ndarray:
        """The ascending positions of all records with an offset from `low` to `high` (exclusive), and a few others."""

    def is_sound(self, record: bytes) -> bool:
        """Whether the checksum of a record (in 0.9, of the batch) is correct."""
