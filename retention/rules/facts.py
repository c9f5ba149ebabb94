"""Facts about one message that the rules compare in order to explain its fate."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.units import MINUTE, SECOND, format_duration


@dataclass(frozen=True)
class Facts:
    """The facts about one message that the rules compare."""

    seq: int
    subject: str
    ts_ns: int
    size: int
    deadline_ns: int | None
    newer: int
    """Messages with higher sequences."""
    bytes_with_newer: int
    newer_on_subject: int
    as_of_ns: int
    scan_end: int | None
    """The message at which the age scan ends, if that comes before this one."""
    last_on_subject: int | None = None
    """The sequence of the last message on its subject; None: nobody asked, or it is this one."""
    deleted_ns: int | None = None
    """The time of that last message, if it is a deletion; None also where nobody asked."""
    marker: int | None = None
    """The sequence of the delete marker that announces that the message is gone."""
    refused: bool = False
    """Whether age or TTL would take the message, but the marker that would have to announce it does not fit."""
    needs: str | None = None
    """The line about consumers that need the message; None: none was asked."""
    held: str | None = None
    """The line of the hold for consumers about the message; None: there is no hold."""
    is_held: bool = False
    """Whether limits leave the message alone, whatever they say."""


REFUSES = ": discard is new, so this limit refuses new messages and never removes stored ones"
"""The line of a limit that removes nothing."""


def messages_are(count: int) -> str:
    """A number of messages as the subject of a sentence."""
    return "1 message is" if count == 1 else f"{count:,} messages are"


def spell_age(age_ns: int) -> str:
    """An age for reading: whole seconds, unless it is shorter than a minute."""
    whole = age_ns if abs(age_ns) < MINUTE else age_ns // SECOND * SECOND
    return format_duration(whole) if whole >= 0 else f"-{format_duration(-whole)}"
