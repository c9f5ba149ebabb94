"""What a server settles when a topic is created, and what an update of the topic changes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from pydantic import model_validator

from retention.config.types import Expiry, Part, Refusal, Size, TopicSize, refusal, refused
from retention.core.iggy_units import SERVER_DEFAULT, UNLIMITED
from retention.core.topic_policy import Profile
from retention.core.units import format_size

SETTINGS = ("message_expiry", "max_topic_size", "segment_size")
"""What a topic may leave to the server."""
SEGMENT_UNIT = 512
SMALLEST_SEGMENT = 2**20
LARGEST_SEGMENT = 2**30


class ServerDefaults(Part):
    """What the server has for topics that do not say; a topic keeps what it was created with."""

    message_expiry: Expiry = UNLIMITED
    max_topic_size: TopicSize = UNLIMITED
    segment_size: Size = LARGEST_SEGMENT

    @model_validator(mode="after")
    def _check(self) -> Self:
        circular = [
            refusal(
                name, "the server's default cannot be the server's default; write what it is", None
            )
            for name in SETTINGS[:2]
            if getattr(self, name) == SERVER_DEFAULT
        ]
        if circular:
            raise refused(circular)
        return self


@dataclass(frozen=True)
class TopicSettings:
    """A topic's settings as concrete values, in the units of the wire: microseconds and bytes, 2^64 - 1 is no limit."""

    message_expiry: int
    max_topic_size: int
    segment_size: int
    defaulted: tuple[str, ...] = ()
    """Those that were left to the server."""


def updated(kept: TopicSettings, said: TopicSettings, profile: Profile) -> TopicSettings:
    """What a topic has after an update (iggy `UpdateTopic`, docs/semantics/topics.md).

    Args:
        kept: what it has.
        said: what it would be created with now, and what of that is left to the server: an update does not name it.
        profile: whose; a server of 0.8 has one segment size for all topics, and an update there names every setting, so
            that one which is left to the server again gets the default of now.
    """
    own = (
        SETTINGS
        if profile == "modern"
        else [one for one in kept.defaulted if one != "segment_size"]
    )
    unchanged = [name for name in said.defaulted if name in own]
    values = {name: getattr(kept if name in unchanged else said, name) for name in SETTINGS}
    chosen = [name for name in unchanged if name not in kept.defaulted]
    return TopicSettings(
        **values, defaulted=tuple(name for name in said.defaulted if name not in chosen)
    )


def setting_refusals(settings: TopicSettings, profile: Profile) -> Iterator[Refusal]:
    """Why a server would not take these settings; Iggy numbers its errors otherwise than JetStream, none is named."""
    least = SMALLEST_SEGMENT if profile == "modern" else SEGMENT_UNIT
    size, cap = settings.segment_size, settings.max_topic_size
    if not least <= size <= LARGEST_SEGMENT or size % SEGMENT_UNIT:
        nearest = min(max(size // SEGMENT_UNIT * SEGMENT_UNIT, least), LARGEST_SEGMENT)
        yield refusal(
            "segment_size",
            f"{size} is out of range: Iggy takes multiples of {SEGMENT_UNIT} bytes from {format_size(least)} to"
            f" {format_size(LARGEST_SEGMENT)}; write {nearest}",
            None,
        )
    if cap < size:
        unsaid = (
            ", or the segment_size that the topic has"
            if "segment_size" in settings.defaulted
            else ""
        )
        yield refusal(
            "max_topic_size segment_size",
            f"{cap} is less than one segment of {size}; write at least that, or unlimited{unsaid}",
            None,
        )
