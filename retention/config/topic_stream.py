"""A topic as the stream that implements it."""

from __future__ import annotations

from retention.config.holds import TopicHold
from retention.config.keeping import KeepingSettings, Selected
from retention.config.stream import StreamConfig
from retention.config.topic import TopicConfig
from retention.config.topic_settings import (
    SETTINGS,
    TopicSettings,
    setting_refusals,
    updated_settings,
)
from retention.core.policy import Policy
from retention.errors import ConfigError


class TopicStream(StreamConfig):
    """A topic as a stream; its name need not be valid for a stream."""

    of: TopicConfig
    """The topic, with the settings below."""
    settings: TopicSettings

    @property
    def topic(self) -> TopicConfig:
        """The topic."""
        return self.of

    @property
    def written_holds(self) -> tuple[TopicHold, ...]:
        """The legal holds that the file has."""
        return self.of.holds

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self.of.partitions

    @property
    def lowest_seq(self) -> int:
        """The lowest sequence that a message can have: offsets begin at 0."""
        return 0

    def policy(self) -> Policy:
        """The limits as used by the rules: those of the topic."""
        return Policy(topic=self.of.policy(), archive=self.archive)

    def with_kept(self, kept: TopicSettings | None) -> TopicStream:
        """The stream with the topic's existing settings where the configuration leaves them to the server.

        Args:
            kept: the existing settings; None: the topic is not created yet.

        Raises:
            ConfigError: the configuration changes a fixed setting, or a server would refuse it.
        """
        if kept is None:
            return self
        requested, profile = self.settings, self.of.profile
        settings = updated_settings(kept, requested, profile)
        refusals = [reason.text for reason in setting_refusals(settings, profile)]
        if profile == "modern" and settings.segment_size != kept.segment_size:
            refusals = [
                f"it is {kept.segment_size} since the topic was created and cannot be changed to"
                f" {requested.segment_size}; write segment_size: {kept.segment_size}, or remove it, or use a new topic"
            ]
        if refusals:
            raise ConfigError(f"topic {self.name}: {'; '.join(refusals)}")
        return stream_of_topic(self.of, settings)


def stream_of_topic(topic: TopicConfig, settings: TopicSettings) -> TopicStream:
    """The stream that implements a topic, with these settings: one subject, no limits of its own."""
    shared = {*KeepingSettings.model_fields, *Selected.model_fields}
    keeping = {name: getattr(topic, name) for name in shared}
    return TopicStream.model_construct(
        **keeping,
        name=topic.name,
        subjects=(topic.name,),
        no_ack=True,
        segment_size=settings.segment_size,
        segment_span=topic.roll_after,
        whole_segments=True,
        of=topic.model_copy(update={name: getattr(settings, name) for name in SETTINGS}),
        settings=settings,
    )
