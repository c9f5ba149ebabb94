"""Configurations with some settings changed, as a question of what a change would do: nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from retention.config.error_report import nearest, read_model
from retention.config.stream import StreamConfig
from retention.config.table import TableConfig
from retention.config.topic_stream import TopicStream
from retention.config.types import ConfigMapping
from retention.errors import UsageError

OF_STREAM = (
    "max_age",
    "expiry",
    "max_msgs",
    "max_bytes",
    "max_msgs_per_subject",
    "max_subjects",
    "delete_retention",
    "discard",
    "whole_segments",
    "allow_msg_ttl",
    "subject_delete_marker_ttl",
    "retention",
    "unmatched",
    "hold_for_consumers",
)
"""The keys of a stream's limits."""
MODE = "mode"
OF_REPLAY = (
    "max_age",
    "max_msgs",
    "max_bytes",
    "max_msgs_per_subject",
    "discard",
    "discard_new_per_subject",
    "max_msg_size",
    "allow_msg_ttl",
    "subject_delete_marker_ttl",
    "allow_rollup_hdrs",
    "deny_purge",
    "duplicate_window",
    "storage",
    "subjects",
    "sealed",
    "retention",
    "hold_for_consumers",
    "expiry",
    "whole_segments",
    "max_subjects",
    "delete_retention",
)
"""The keys that a replay answers about, or that it needs changed before it can answer."""
_DECIDES = OF_REPLAY[: OF_REPLAY.index("sealed")]
"""The keys that decide what a server does with a publish, and with what it holds."""
OF_SIMULATED_REPLAY = (*OF_STREAM, *(key for key in _DECIDES if key not in {*OF_STREAM, "storage"}))
"""The keys that decide what a pass with `mode: replay` removes, and the limits that exclude it. No server changes the
storage of a stream."""
OF_TOPIC = ("message_expiry", "max_topic_size", "roll_after", "respect_consumer_offsets")
"""The keys of a topic's limits."""
OF_TABLE = ("max_age", "max_rows", "max_rows_per_key", "max_bytes", "expires_at", "policies")
"""The keys of a table's limits."""
Changed = TypeVar("Changed", bound=ConfigMapping)


def changed_stream(config: StreamConfig, settings: Mapping[str, object]) -> StreamConfig:
    """A stream or topic with some limits changed.

    Args:
        config: the stream or topic as configured.
        settings: key → value as the file would have it.

    Raises:
        UsageError: a key is not a limit, or its value is not valid, alone or with the others.
    """
    if isinstance(config, TopicStream):
        topic = _changed(config.of, settings, OF_TOPIC)
        return config.model_copy(update={"of": topic, "segment_span": topic.roll_after})
    replays = settings.get(MODE, config.mode) == "replay"
    return _changed(config, settings, (*(OF_SIMULATED_REPLAY if replays else OF_STREAM), MODE))


def replayed_stream(config: StreamConfig, settings: Mapping[str, object]) -> StreamConfig:
    """A stream with what its server does at each publish changed; otherwise as `changed_stream`."""
    return _changed(config, settings, OF_REPLAY, "replayed")


def replay_settings(config: StreamConfig) -> dict[str, Any]:
    """Everything that decides what a server does with a publish and with what it holds: key → value, as in JSON."""
    values = ((key, getattr(config, key)) for key in _DECIDES)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values}


def replayed_as(config: StreamConfig, settings: Mapping[str, Any]) -> StreamConfig:
    """A stream as it was configured when it had some `replay_settings`.

    Raises:
        UsageError: they contradict what else is configured now.
    """
    return config if replay_settings(config) == settings else replayed_stream(config, settings)


def changed_table(config: TableConfig, settings: Mapping[str, object]) -> TableConfig:
    """A table with some limits changed; otherwise as `changed_stream`."""
    return _changed(config, settings, OF_TABLE)


def _changed(
    config: Changed,
    settings: Mapping[str, object],
    keys: Iterable[str],
    answered: str = "simulated",
) -> Changed:
    name = getattr(config, "name", "")
    for key in settings.keys() - set(keys):
        close = nearest(key, keys)
        meant = f"; did you mean {close}?" if close else ""
        raise UsageError(
            f"{name}: {key} is not one of its limits, and only limits can be {answered}: {', '.join(keys)}{meant}"
        )
    written = {key: getattr(config, key) for key in config.model_fields_set}
    changed, mistakes = read_model(type(config), written | dict(settings), ())
    if changed is None:
        raise UsageError(
            "; ".join(f"{name}: {'.'.join(map(str, each.place))}: {each.text}" for each in mistakes)
        )
    return changed
