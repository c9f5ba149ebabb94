"""The settings of a server's topic beside its copy, and where the copy's own differ."""

from __future__ import annotations

from collections.abc import Mapping

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.iggy_units import SERVER_DEFAULT, UNLIMITED
from retention.core.units import MICROSECOND, format_duration
from retention.iggy.wire import TopicInfo
from retention.ingest.sync.configuration import ConfigDifference


def settings_there(info: TopicInfo) -> Mapping[str, object]:
    """The server's settings of a topic: name, partitions, microseconds and bytes, and its other options."""
    return {
        **{str(name): _plain(value) for name, value in info.options.items()},
        "name": info.name,
        "partitions": len(info.partitions),
        "message_expiry": info.message_expiry,
        "max_topic_size": info.max_topic_size,
    }


def topic_difference_notes(opened: OpenedStream, settings: Mapping[str, object]) -> list[str]:
    """A sentence about the settings that remove messages or cut segments, and that differ; none if they agree.

    Args:
        opened: the copy.
        settings: the server's, as `settings_there` returns them.
    """
    ours = topic_of(opened).policy()
    theirs = {key: _number(settings.get(key)) for key in _COMPARED}
    pairs: dict[str, tuple[object, object]] = {
        "max_topic_size": (ours.max_topic_size, _limit(theirs["max_topic_size"])),
        "message_expiry": (
            _spelled(ours.message_expiry_us),
            _spelled(_limit(theirs["message_expiry"])),
        ),
        "partitions": (ours.partitions, theirs["partitions"]),
        "segment_size": (ours.segment_size, theirs["segment_size"]),
    }
    differing = [ConfigDifference(key, *pair) for key, pair in pairs.items() if pair[0] != pair[1]]
    return [f"the configurations differ: {'; '.join(map(str, differing))}"] if differing else []


_COMPARED = ("max_topic_size", "message_expiry", "partitions", "segment_size")


def _limit(code: int | None) -> int | None:
    return None if code in {SERVER_DEFAULT, UNLIMITED} else code


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _spelled(microseconds: int | None) -> str | None:
    return None if microseconds is None else format_duration(microseconds * MICROSECOND)


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
