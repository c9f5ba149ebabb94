"""Refusals of a batch's messages: the first reason against each, for one stage of the server's checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MessageRefusal:
    """The refusal of one message."""

    row: int
    reason: str
    code: int | None = None
    """The server's error code, if there is one."""
    malformed: bool = False
    """Whether the message itself is invalid, for any stream."""


class Validation:
    """The first reason to refuse each message of a batch, for one stage of the server's checks."""

    def __init__(self, messages: int) -> None:
        self._reasons: list[tuple[str, int | None, bool]] = []
        self._of_row = np.full(messages, -1)

    def refuse(
        self, mask: np.ndarray, reason: str, code: int | None = None, *, malformed: bool = False
    ) -> None:
        """Refuse the messages in `mask` that no earlier reason refuses."""
        self._of_row[mask & (self._of_row < 0)] = len(self._reasons)
        self._reasons.append((reason, code, malformed))

    def refusal(self, row: int) -> MessageRefusal | None:
        """The refusal of a message; None: it is accepted."""
        at = self._of_row[row]
        if at < 0:
            return None
        reason, code, malformed = self._reasons[at]
        return MessageRefusal(row, reason, code, malformed)

    def refused(self) -> np.ndarray:
        """A mask of the refused messages."""
        return self._of_row >= 0

    def earliest(self) -> MessageRefusal | None:
        """The refusal of the first refused message."""
        refused = np.flatnonzero(self.refused())
        return self.refusal(int(refused[0])) if len(refused) else None
