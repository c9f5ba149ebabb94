"""Selection of streams by name, pattern and tag."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from retention.config.discovery import close_name, listed_names, unknown_stream_error
from retention.core.wording import counted
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.config import Config

_WILDCARD = re.compile(r"[*?]|\[.+\]")


def is_pattern(name: str) -> bool:
    """Whether a name has shell wildcards: `*`, `?`, or a set such as `[0-9]`."""
    return _WILDCARD.search(name) is not None


def select_streams(
    config: Config,
    all_streams: Callable[[], Sequence[str]],
    names: Iterable[str] = (),
    tags: Iterable[str] = (),
    among: Iterable[str] = (),
    tables: Sequence[str] = (),
) -> list[str]:
    """The streams and tables that have one of the names, or match one of the patterns, and have one of the tags.

    Args:
        config: the configuration, with the tags.
        all_streams: lists the streams of the warehouse.
        names: names and patterns; none selects all streams. The name of a stream is never a pattern, and an unknown
            name is kept, so that the operation on it can refuse it.
        tags: tags; none means any.
        among: the streams to which patterns, tags and an empty selection apply; ignored if only names are given.
        tables: the tables among all of these, for the words of errors.

    Raises:
        UsageError: a pattern or a tag matches nothing, or no stream matches both.
    """
    names, tags = list(dict.fromkeys(names)), set(tags)
    if names and not tags and not any(map(is_pattern, names)):
        return names
    known = all_streams()
    meant = list(among)
    _refuse_unknown_tags(config, tags)
    chosen = dict.fromkeys(() if names else meant)
    for name in names:
        is_name = name in known or not is_pattern(name)
        chosen |= dict.fromkeys([name] if is_name else _matching(config, name, meant, tables))
    if not tags:
        return list(chosen)
    listed = _tags(config)
    tagged = [name for name in chosen if name not in known or tags & set(listed.get(name, ()))]
    if not tagged:
        raise UsageError(
            f"{' or '.join(sorted(tags))}: no stream of {', '.join(names) or 'those that can be meant here'} has this "
            f"tag; those that have it are {listed_names(_tagged(config, tags))}"
        )
    return tagged


def _tags(config: Config) -> dict[str, tuple[str, ...]]:
    """Name of each listed stream and table → its tags."""
    of_streams = {stream.name: stream.tags for stream in config.streams}
    return of_streams | {table.name: table.tags for table in config.tables}


def _tagged(config: Config, tags: set[str]) -> list[str]:
    return [name for name, own_tags in _tags(config).items() if tags & set(own_tags)]


def _matching(
    config: Config, pattern: str, meant: Sequence[str], tables: Sequence[str]
) -> list[str]:
    matching = [name for name in meant if fnmatchcase(name, pattern)]
    if matching:
        return matching
    if not meant:
        raise unknown_stream_error(pattern, meant, config.warehouse)
    nearest = close_name(re.sub(r"[*?\[\]]", "", pattern), meant)
    several = counted(len(meant), "stream or table", "streams and tables")
    topics = {stream.name for stream in config.streams if stream.topic is not None}
    kind = "topic" if topics.issuperset(meant) else "stream"
    kinds = several if tables else counted(len(meant), kind)
    raise UsageError(
        f"{pattern}: this pattern matches none of {kinds}: {listed_names(meant)}; the nearest "
        f"is {nearest}"
    )


def _refuse_unknown_tags(config: Config, tags: Iterable[str]) -> None:
    there = sorted({tag for own_tags in _tags(config).values() for tag in own_tags})
    for tag in sorted(set(tags) - set(there)):
        if not there:
            raise UsageError(
                f"{tag}: no stream has a tag; write `tags: [{tag}]` into the streams that it means, or into a group"
            )
        raise UsageError(
            f"{tag}: no stream has this tag; there are {listed_names(there)}; the nearest is {close_name(tag, there)}"
        )
