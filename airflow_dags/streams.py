"""Names, groups and tags of the streams, buckets, topics and tables in `retention.yaml`, read without the engine.

Airflow parses a DAG file again and again. Reading only these names takes milliseconds. The full
configuration with its models takes a third of a second, and libraries that Airflow's environment
need not have. The jobs validate the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CONFIGURATION, UNLISTED = "configuration", "unlisted"
"""The ids of a DAG's tasks that belong to no stream."""
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,150}")
_MOST_CHARACTERS = 140
# The engine's own bounds of a configuration.
_MOST_BYTES = 16 << 20
_DEEPEST = 64
_MOST_MERGED = 20_000
_MOST_TIMES = 20


class _Texts(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML with every scalar read as text (`NO`, `010`, `30d`), and with `<<` merges."""

    most_merged = _MOST_MERGED
    """The maximum number of entries from merge keys."""
    _merged = 0
    _depth = 0

    def flatten_mapping(self, node: Any) -> None:
        """Merge the mappings of `<<`, and refuse a text that expands beyond the bound."""
        self._depth += 1
        super().flatten_mapping(node)
        self._depth -= 1
        if self._depth:
            self._merged += len(node.value)
        if self._merged > self.most_merged:
            raise _BoundError(
                f"merge keys stand for more than {self.most_merged:,} entries; write fewer of them",
                node.start_mark,
            )


_Texts.yaml_implicit_resolvers = {"<": [(_MERGE, re.compile("<<"))]}


class _BoundError(Exception):
    """A text beyond the bounds of a configuration, with the line."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem)
        self.line = mark.line + 1 if mark else 1


class Listed(NamedTuple):
    """A stream in the configuration."""

    name: str
    group: str | None = None
    """The group that it inherits settings from."""
    tags: tuple[str, ...] = ()
    """Its own tags, or those of the nearest group with tags."""
    is_copy: bool = False
    """Whether it is kept in step with a live server (`sync`)."""


def listed_streams(config: str | Path) -> list[Listed]:
    """All streams and tables for commands without a name: streams, then those of buckets, then topics, then tables.

    Args:
        config: `retention.yaml`, or the JSON of one stream from `nats stream info --json`.

    Raises:
        ValueError: there is no such file, it is not YAML, it is too long, nests too deep or merges
            too much, or it lists no stream.
    """
    try:
        values = _values(Path(config))
    except _BoundError as error:
        raise ValueError(f"{config}:{error.line}: {error}") from None
    except (OSError, yaml.YAMLError) as error:
        first = " ".join(str(error).split())
        raise ValueError(f"{config}: the streams cannot be read from it: {first}") from error
    listed: dict[str, Listed] = {}
    for stream in _listed(values if isinstance(values, Mapping) else {}):
        listed.setdefault(stream.name, stream)
    if not listed:
        raise ValueError(
            f"{config}: lists no stream, so there is nothing to schedule; list them under {_KEYS}"
        )
    return list(listed.values())


def listed_or_last(config: str | Path, kept: Path) -> tuple[list[Listed], str | None]:
    """The streams of a configuration; if it cannot be read, the last ones read, and a sentence with the reason.

    A DAG that disappears at night alerts no one. So the last streams are kept, with a task that
    fails with the sentence.

    Args:
        config: as for `listed_streams`.
        kept: the file that keeps the streams; errors of writing it are ignored.

    Raises:
        ValueError: the configuration cannot be read, and was never read before.
    """
    try:
        listed = listed_streams(config)
    except ValueError as error:
        last = _kept(kept, config)
        if not last:
            raise
        return last, str(error)
    if _kept(kept, config) != listed:
        _keep(kept, config, listed)
    return listed, None


def _kept(kept: Path, config: str | Path) -> list[Listed]:
    try:
        values = json.loads(kept.read_text(encoding="utf-8"))
        if values["config"] != str(config):
            return []
        groups, tags = values.get("groups", {}), values.get("tags", {})
        copies = values.get("copies", ())
        return [
            Listed(name, groups.get(name), tuple(tags.get(name, ())), name in copies)
            for name in values["streams"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _keep(kept: Path, config: str | Path, listed: list[Listed]) -> None:
    values = {
        "config": str(config),
        "streams": [stream.name for stream in listed],
        "groups": {stream.name: stream.group for stream in listed if stream.group},
        "tags": {stream.name: stream.tags for stream in listed if stream.tags},
        "copies": [stream.name for stream in listed if stream.is_copy],
    }
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        written = kept.with_name(f"{kept.name}.{os.getpid()}")
        written.write_text(json.dumps(values), encoding="utf-8")
        written.replace(kept)


def _values(config: Path) -> Any:
    """The content of a file, after cheap checks of its length and depth."""
    with config.open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise _BoundError(f"is longer than {_MOST_BYTES >> 20} MiB; write less", None)
    depth = written = 0
    for event in yaml.parse(text, _Texts):
        written += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise _BoundError(
                f"nests more than {_DEEPEST} deep; write the values out", event.start_mark
            )
    loader = _Texts(text)
    loader.most_merged = _MOST_MERGED + _MOST_TIMES * written
    return loader.get_single_data()


def group_id(stream: str) -> str:
    """The id of a stream's task group: its name, or an id derived from it if Airflow does not accept the name.

    >>> group_id("ORDERS")
    'ORDERS'
    >>> group_id("clicks.eu")
    'clicks_eu-c0816e3b'
    """
    if _PLAIN.fullmatch(stream) and stream not in (CONFIGURATION, UNLISTED):
        return stream
    digest = hashlib.sha256(stream.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', stream)[:_MOST_CHARACTERS]}-{digest}"


def _listed(values: Mapping[str, Any]) -> Iterator[Listed]:
    is_one = not SECTIONS.keys() & values.keys()
    groups = values.get("groups")
    settings = groups if isinstance(groups, Mapping) else {}
    for section, name_of in SECTIONS.items():
        items = [values] if is_one and section == "streams" else _items(values.get(section))
        for item in items:
            if name := name_of(item):
                own = _own(item)
                parent, tags = _parent(own, settings), _tags(own, settings)
                yield Listed(
                    name, parent, tags, isinstance(_nearest("sync", own, settings), Mapping)
                )


def _items(listed: object) -> Iterator[Mapping[str, Any]]:
    yield from (
        (item for item in listed if isinstance(item, Mapping)) if isinstance(listed, list) else ()
    )


def _own(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a stream: next to its name, or in the server's `config`."""
    config = item.get("config")
    return config if isinstance(config, Mapping) else item


def _parent(settings: Mapping[str, Any], groups: Mapping[str, Any]) -> str | None:
    """The group that settings inherit from; an empty value means no group."""
    parent = settings.get("group")
    return parent if isinstance(parent, str) and isinstance(groups.get(parent), Mapping) else None


def _tags(settings: Mapping[str, Any], groups: Mapping[str, Any]) -> tuple[str, ...]:
    """The tags of settings, or those of the nearest group above them with tags."""
    tags = _nearest("tags", settings, groups)
    listed = tags if isinstance(tags, list) else ()
    return tuple(dict.fromkeys(tag for tag in listed if isinstance(tag, str)))


def _nearest(key: str, settings: Mapping[str, Any], groups: Mapping[str, Any]) -> Any:
    """The list or mapping of settings under a key, or that of the nearest group above them with one; else None."""
    seen: set[str] = set()
    while not isinstance(settings.get(key), list | Mapping):
        parent = _parent(settings, groups)
        if parent is None or parent in seen:
            return None
        seen.add(parent)
        settings = groups[parent]
    return settings[key]


def _name(item: Mapping[str, Any]) -> str:
    name = item.get("name")
    return name if isinstance(name, str) else ""


def _stream(item: Mapping[str, Any]) -> str:
    return _name(_own(item))


def _bucket(item: Mapping[str, Any]) -> str:
    name = _name(item)
    return name and f"KV_{name}"


def _topic(item: Mapping[str, Any]) -> str:
    is_seed = str(item.get("seed_names")).lower() == "true"
    return ".".join(_name(item).lower().split()) if is_seed else _name(item)


SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "streams": _stream,
    "buckets": _bucket,
    "topics": _topic,
    "tables": _name,
}
"""Section of a configuration → a function from one of its entries to the stream's name; empty: no name."""
_KEYS = " or ".join(f"`{section}:`" for section in SECTIONS)
