"""What reading a log needs to know of the server that wrote it: its era."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from retention.formats.iggy.messages import Messages

EraName = Literal["0.8", "0.9"]

TORN = "the log ends within it"
CHECKSUM = "its checksum is wrong"


@dataclass(frozen=True)
class Taken:
    """The whole records at the beginning of a window, up to the first that is not right or not all there."""

    messages: Messages
    end: int
    """Where they end in the window."""
    problem: str | None = None
    """What is wrong with the record that follows."""
    wants: int = 0
    """How long the record is that follows, where the window ends within it."""


class Era(Protocol):
    """How the servers of one era write logs: one record behind the other, a message or a batch of them each."""

    @property
    def name(self) -> EraName:
        """As `--era` takes it."""

    @property
    def header_bytes(self) -> int:
        """How much of a record tells its length and its offset."""

    @property
    def is_gapless(self) -> bool:
        """Whether the offsets of a log have no gaps, so that the place of a record tells its offset."""

    def take(self, window: bytes, left: int) -> Taken:
        """The records at the beginning of a window, with their checksums compared.

        Args:
            window: bytes of the log from the beginning of a record on.
            left: bytes from there to the end of the log, which may lie behind the window.
        """

    def length_and_offset(self, header: bytes) -> tuple[int, int] | None:
        """What a record's header says, true or not; None where there can be none."""

    def candidates(self, window: bytes, low: int, high: int) -> np.ndarray:
        """Where a record with an offset from `low` to before `high` may begin, rising: few places, and all that do."""

    def is_sound(self, record: bytes) -> bool:
        """Whether the checksum of a record holds; in 0.9 that of the batch."""
