"""One topic's configuration: Iggy's names, spellings and limits, and ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Self

from pydantic import model_validator

from retention.config.checks.sync import topic_sync_refusals
from retention.config.holds import TopicHold
from retention.config.keeping import KeepingSettings, Selected
from retention.config.nested import TopicSyncSource
from retention.config.topic_settings import (
    LARGEST_SEGMENT,
    SETTINGS,
    ServerDefaults,
    TopicSettings,
)
from retention.config.types import (
    ConfigRefusal,
    Count,
    Expiry,
    Flag,
    Size,
    Span,
    TopicSize,
    refusal,
    refusals_error,
)
from retention.core.iggy_units import SERVER_DEFAULT, UNLIMITED
from retention.core.topic_policy import Profile, TopicPolicy
from retention.core.units import MICROSECOND

MOST_NAME_BYTES = 255
MOST_PARTITIONS = 1000
_SEED_NAME = re.compile(r"[\w.\-\s]+")


class TopicConfig(KeepingSettings, Selected):
    """A topic as CreateTopic would take it (iggy 0.9; with `profile: v8` as 0.8 would); sizes are bytes."""

    name: str
    stream: str | None = None
    """Iggy's stream, under which statistics group the topic."""
    partitions: Count = 1
    profile: Profile = "modern"
    message_expiry: Expiry = SERVER_DEFAULT
    max_topic_size: TopicSize = SERVER_DEFAULT
    segment_size: Size = LARGEST_SEGMENT
    max_message_size: Size = 64 * 2**20
    """The largest batch that the server's bus accepts at once; only runs with `profile: modern` use it."""
    respect_consumer_offsets: Flag = True
    roll_after: Span = 0
    """The age of its first message at which an active segment is sealed, nanoseconds; 0: never, as in Iggy."""
    seed_names: Flag = False
    """Whether the name is converted to the form that servers of 2023 used."""
    sync: TopicSyncSource | None = None
    holds: tuple[TopicHold, ...] = ()

    @model_validator(mode="after")
    def _check_and_normalise(self) -> Self:
        refusals = [*_name(self), *_partitions(self), *topic_sync_refusals(self.sync, self.stream)]
        if refusals:
            raise refusals_error(refusals)
        if self.seed_names:
            self.__dict__["name"] = ".".join(self.name.lower().split())
        return self

    def settings(self, server: ServerDefaults) -> TopicSettings:
        """The settings that the topic is created with on a server with these defaults."""
        defaulted = tuple(
            name
            for name in SETTINGS
            if name not in self.model_fields_set or getattr(self, name) == SERVER_DEFAULT
        )
        values = {name: getattr(server if name in defaulted else self, name) for name in SETTINGS}
        return TopicSettings(**values, defaulted=defaulted)

    def policy(self) -> TopicPolicy:
        """The limits as used by the rules; one left to the server's default is None: never, or unlimited."""
        return TopicPolicy(
            partitions=self.partitions,
            segment_size=self.segment_size,
            max_message_size=self.max_message_size,
            profile=self.profile,
            message_expiry_us=_limit(self.message_expiry),
            max_topic_size=_limit(self.max_topic_size),
            respect_consumer_offsets=self.respect_consumer_offsets,
            roll_after_us=max(self.roll_after // MICROSECOND, 1) if self.roll_after else None,
        )


def _limit(code: int) -> int | None:
    return None if code in (SERVER_DEFAULT, UNLIMITED) else code


def _name(topic: TopicConfig) -> Iterator[ConfigRefusal]:
    if not 1 <= len(topic.name.encode()) <= MOST_NAME_BYTES:
        yield _ours("name", f"a topic's name has 1 to {MOST_NAME_BYTES} bytes; write another one")
    if topic.seed_names and not (_SEED_NAME.fullmatch(topic.name) and topic.name.strip()):
        yield _ours(
            "name seed_names",
            f"{topic.name!r} was not a name then: write letters, digits and any of _ . - with blanks between, or remove"
            " seed_names",
        )


def _partitions(topic: TopicConfig) -> Iterator[ConfigRefusal]:
    if not 1 <= topic.partitions <= MOST_PARTITIONS:
        yield _ours(
            "partitions", f"{topic.partitions} is out of range: write 1 to {MOST_PARTITIONS}"
        )


def _ours(keys: str, text: str) -> ConfigRefusal:
    """A refusal without an error code, because Iggy's error numbers are not JetStream's."""
    return refusal(keys, text, None)
