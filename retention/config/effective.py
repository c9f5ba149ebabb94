"""Effective settings of a stream, topic or table: the value of every key, and its source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter

from retention.config.describe_table import rows_in_words
from retention.config.load import DEFAULTED, Config
from retention.config.stream import StreamConfig
from retention.config.table import RowPolicyConfig, TableConfig
from retention.config.table_types import AgeLimit, RowLimit, SizeLimit, Switch, format_column
from retention.config.topic_settings import SETTINGS
from retention.config.topic_stream import TopicStream
from retention.config.types import (
    UNLIMITED,
    Budget,
    ByteLimit,
    ConfigMapping,
    Duration,
    Expiry,
    Grace,
    Kept,
    Limit,
    Share,
    Size,
    SmallByteLimit,
    Span,
    TopicSize,
)
from retention.config.written import Written
from retention.core import iggy_units
from retention.core.json_object import JsonObject
from retention.core.units import INT64_MAX, MICROSECOND, format_duration, format_size

BUILT_IN = "built in"
DERIVED = "follows from other keys"
AT_CREATION = "since the topic was created"
_RELATIVE = {"archive", "location"}
"""Keys whose values are relative to the file."""


@dataclass(frozen=True)
class EffectiveSetting:
    """The value of a key."""

    key: str
    value: Any
    """The value for JSON: durations in nanoseconds (topics: Iggy's microseconds), sizes in bytes."""
    text: str
    """The value as shown to users."""
    source: str
    """`stream ORDERS`, `group pii`, `defaults`, `server_defaults`, `built in`, or another origin."""
    line: int | None = None
    """Its line in the file; None: the file does not have it."""

    @property
    def is_written(self) -> bool:
        """Whether the file has it, or it was fixed when the topic was created."""
        return self.source not in {BUILT_IN, DERIVED}

    def as_json(self) -> JsonObject:
        """The setting as JSON values."""
        return {name: value for name, value in vars(self).items() if name != "text"}


def effective_settings(config: Config, stream: StreamConfig) -> list[EffectiveSetting]:
    """The settings of a stream or topic, written ones first.

    Args:
        config: the configuration, which need not list it.
        stream: the stream as opened, so that a topic has the settings that it was created with.
    """
    model = stream.of if isinstance(stream, TopicStream) else stream
    written = config.written.streams.get(stream.name, {})
    defaults = _defaults_for(config, model)

    def source(key: str) -> Written:
        if isinstance(stream, TopicStream) and key in SETTINGS:
            return _of_topic(config, stream, written.get(key), key)
        return _source(model, written, defaults, key)

    return _settings(model, source)


def effective_table_settings(config: Config, table: TableConfig) -> list[EffectiveSetting]:
    """The settings of a table in place that the configuration lists, written ones first."""
    written = config.written.tables[table.name]
    defaults = _defaults_for(config, table)
    return _settings(table, lambda key: _source(table, written, defaults, key))


def _settings(model: BaseModel, source: Callable[[str], Written]) -> list[EffectiveSetting]:
    settings = [_setting(key, model, source(key)) for key in type(model).model_fields]
    return sorted(settings, key=lambda setting: not setting.is_written)


def _defaults_for(config: Config, model: ConfigMapping) -> dict[str, Written]:
    """The values of `defaults` that apply to a stream, topic or table."""
    defaults, shared = config.written.defaults, DEFAULTED[type(model)].model_fields
    return {key: defaults[key] for key in defaults if key in shared}


def _source(
    model: BaseModel, written: Mapping[str, Written], defaults: Mapping[str, Written], key: str
) -> Written:
    value = getattr(model, key)
    of_stream = written.get(key)
    if of_stream is not None:
        changed = key not in _RELATIVE and _alone(model, key, of_stream.value) != value
        source = f"{of_stream.source}, changed by other keys" if changed else of_stream.source
        return Written(source, of_stream.line, value)
    if key in defaults:
        return defaults[key]
    is_plain = value == type(model).model_fields[key].get_default(call_default_factory=True)
    return Written(BUILT_IN if is_plain else DERIVED, 0, value)


def _of_topic(
    config: Config, stream: TopicStream, listed_value: Written | None, key: str
) -> Written:
    """The source of a topic's setting: its own, the server's, or from its creation."""
    listed = config.stream(stream.name)
    value = getattr(stream.settings, key)
    if isinstance(listed, TopicStream) and getattr(listed.settings, key) != value:
        return Written(AT_CREATION, 0, value)
    if listed_value is not None and key not in stream.settings.defaulted:
        return listed_value
    return config.written.server_defaults.get(key) or Written(BUILT_IN, 0, value)


def _alone(model: BaseModel, key: str, value: object) -> object:
    """The value of a key parsed alone, without the effects of other keys."""
    known = type(model).model_fields[key]
    kind: Any = known.annotation
    if known.metadata:
        kind = Annotated[known.annotation, *known.metadata]
    return TypeAdapter(kind).validate_python(value)


def _setting(key: str, model: BaseModel, source: Written) -> EffectiveSetting:
    value = model.model_dump(mode="json", include={key})[key]
    if isinstance(model, TableConfig):
        value = _of_table(key, model, value)
    text = _spelled(key, model, value)
    return EffectiveSetting(key, value, text, source.source, source.line or None)


def _spelled(key: str, model: BaseModel, value: object) -> str:
    """A value as a user would write it."""
    kinds = type(model).model_fields[key].metadata
    spell = _SPELL.get(id(kinds[0])) if kinds else None
    if spell is not None and isinstance(value, int):
        return spell(value)
    if spell is not None and value is None:
        return "off"
    if key == "policies" and isinstance(model, TableConfig):
        return "; ".join(map(_policy_text, model.policies)) or "none"
    if isinstance(value, str):
        return value or '""'
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _of_table(key: str, table: TableConfig, value: object) -> Any:
    """The value of a key of tables as the file has it: columns by their names, policies with their own keys."""
    if key == "policies":
        return [policy.model_dump(mode="json", exclude_unset=True) for policy in table.policies]
    columns = getattr(table, key)
    if key in {"key", "order"}:
        return [format_column(column) for column in columns]
    return format_column(columns) if isinstance(columns, tuple) and key != "tags" else value


def _policy_text(policy: RowPolicyConfig) -> str:
    limits = (key for key in type(policy).model_fields if key in policy.named)
    values = ", ".join(f"{key} {_spelled(key, policy, getattr(policy, key))}" for key in limits)
    return f"{rows_in_words(policy.matches)}: {values}"


def _limit(spell: Callable[[int], str]) -> Callable[[int], str]:
    return lambda value: "unlimited" if value == UNLIMITED else spell(value)


def _expiry(code: int) -> str:
    names = {iggy_units.SERVER_DEFAULT: "server_default", iggy_units.UNLIMITED: "never"}
    return names.get(code) or format_duration(code * MICROSECOND)


def _topic_size(code: int) -> str:
    names = {iggy_units.SERVER_DEFAULT: "server_default", iggy_units.UNLIMITED: "unlimited"}
    return names.get(code) or format_size(code)


def _kinds() -> Iterator[tuple[object, Callable[[int], str]]]:
    yield from ((kind, format_duration) for kind in (Duration, Grace))
    yield Span, lambda value: format_duration(value) if value else "off"
    yield Kept, lambda value: "forever" if value == INT64_MAX else format_duration(value)
    yield from ((kind, format_size) for kind in (Size, Budget))
    yield from ((kind, _limit(format_size)) for kind in (ByteLimit, SmallByteLimit))
    yield Limit, _limit(str)
    yield AgeLimit, format_duration
    yield RowLimit, "{:,}".format
    yield SizeLimit, format_size
    yield Switch, lambda value: "on" if value else "off"
    yield Share, "{}%".format
    yield Expiry, _expiry
    yield TopicSize, _topic_size


_SPELL = {id(get_args(kind)[1]): spell for kind, spell in _kinds()}
"""Parser of a kind of value → the formatter of its numbers."""
