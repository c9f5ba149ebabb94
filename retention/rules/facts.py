"""Facts about one message that rules compare to explain its fate."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.units import MINUTE, SECOND, format_duration
from retention.core.wording import counted


@dataclass(frozen=True)
class Facts:
    """The facts about one message."""

    seq: int
    subject: str
    ts_ns: int
    size: int
    deadline_ns: int | None
    newer: int
    """The number of messages with higher sequences."""
    bytes_with_newer: int
    newer_on_subject: int
    as_of_ns: int
    scan_end: int | None
    """The message at which the age scan ends, if it precedes this message."""
    newer_subjects: int = 0
    """The number of subjects with a newer last message than its subject."""
    last_on_subject: int | None = None
    """The sequence of the last message on its subject; None: not read, or it is this message."""
    deleted_ns: int | None = None
    """The time of that last message, if it is a deletion; None also if not read."""
    marker: int | None = None
    """The sequence of the delete marker for the removal of the message."""
    refused: bool = False
    """Whether age or TTL would remove the message, but its delete marker does not fit."""
    needs: str | None = None
    """The line about consumers that need the message; None: no consumers were read."""
    held: str | None = None
    """The line about the hold for consumers; None: there is no hold."""
    is_held: bool = False
    """Whether the message is held from all limits."""


REFUSES = ": discard is new, so this limit refuses new messages and never removes stored ones"
"""The line of a limit that removes nothing."""


def messages_are(count: int) -> str:
    """A number of messages as the subject of a sentence."""
    return counted(count, "message is", "messages are")


def spell_age(age_ns: int) -> str:
    """An age for reading: whole seconds, unless it is shorter than a minute."""
    whole = age_ns if abs(age_ns) < MINUTE else age_ns // SECOND * SECOND
    return format_duration(whole) if whole >= 0 else f"-{format_duration(-whole)}"
