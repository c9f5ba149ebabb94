"""The settings that a server fixes when a topic is created, and updates of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from pydantic import model_validator

from retention.config.types import (
    ConfigMapping,
    ConfigRefusal,
    Expiry,
    Size,
    TopicSize,
    refusal,
    refusals_error,
)
from retention.core.iggy_units import SERVER_DEFAULT, UNLIMITED
from retention.core.topic_policy import Profile
from retention.core.units import format_size

SETTINGS = ("message_expiry", "max_topic_size", "segment_size")
"""The settings that a topic may leave to the server."""
SEGMENT_UNIT = 512
SMALLEST_SEGMENT = 2**20
LARGEST_SEGMENT = 2**30


class ServerDefaults(ConfigMapping):
    """The server's defaults for settings that a topic leaves out; a topic keeps those that it was created with."""

    message_expiry: Expiry = UNLIMITED
    max_topic_size: TopicSize = UNLIMITED
    segment_size: Size = LARGEST_SEGMENT

    @model_validator(mode="after")
    def _check(self) -> Self:
        circular = [
            refusal(
                name, "the server's default cannot be the server's default; write its value", None
            )
            for name in SETTINGS[:2]
            if getattr(self, name) == SERVER_DEFAULT
        ]
        if circular:
            raise refusals_error(circular)
        return self


@dataclass(frozen=True)
class TopicSettings:
    """A topic's settings as concrete values, in the units of the wire: microseconds and bytes, 2^64 - 1: unlimited."""

    message_expiry: int
    max_topic_size: int
    segment_size: int
    defaulted: tuple[str, ...] = ()
    """The names of the settings left to the server."""


def updated_settings(
    kept: TopicSettings, requested: TopicSettings, profile: Profile
) -> TopicSettings:
    """The settings of a topic after an update (iggy `UpdateTopic`, docs/semantics/topics.md).

    Args:
        kept: its current settings.
        requested: the settings that it would be created with now; an update does not include those left to the server.
        profile: the server's; 0.8 has one segment size for all topics, and an update there includes every setting, so a
            setting left to the server gets the current default again.
    """
    keepable = (
        SETTINGS
        if profile == "modern"
        else [name for name in kept.defaulted if name != "segment_size"]
    )
    unchanged = [name for name in requested.defaulted if name in keepable]
    values = {name: getattr(kept if name in unchanged else requested, name) for name in SETTINGS}
    chosen = [name for name in unchanged if name not in kept.defaulted]
    return TopicSettings(
        **values, defaulted=tuple(name for name in requested.defaulted if name not in chosen)
    )


def setting_refusals(settings: TopicSettings, profile: Profile) -> Iterator[ConfigRefusal]:
    """The server's refusals of these settings; without codes, because Iggy's error numbers are not JetStream's."""
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
        or_existing = (
            ", or the segment_size that the topic has"
            if "segment_size" in settings.defaulted
            else ""
        )
        yield refusal(
            "max_topic_size segment_size",
            f"{cap} is less than one segment of {size}; write at least that, or unlimited{or_existing}",
            None,
        )
