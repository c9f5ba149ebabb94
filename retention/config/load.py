"""`retention.yaml` as a whole: the location of the warehouse, and the configured streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field

from retention.config.bucket import (
    STREAM_KEY,
    BucketConfig,
    in_bucket_words,
    stream_values,
    with_stream_keys,
)
from retention.config.checks.cross_stream import cross_stream_mistakes, name_mistakes
from retention.config.checks.cross_table import location_mistakes
from retention.config.checks.storage import ledger_mistakes, storage_mistakes
from retention.config.document import (
    ConfigDocument,
    Mistake,
    Place,
    describe_mistakes,
    read_document,
)
from retention.config.error_report import read_model
from retention.config.groups import Groups
from retention.config.keeping import KeepingSettings, RunSettings, StorageSettings
from retention.config.locations import Location, absolute_location, refused_location
from retention.config.owner import Owner, owner_of
from retention.config.stream import StreamConfig
from retention.config.table import TableConfig
from retention.config.table_types import absolute_table_location
from retention.config.topic import TopicConfig
from retention.config.topic_settings import ServerDefaults, setting_refusals
from retention.config.topic_stream import TopicStream, stream_of_topic
from retention.config.types import ConfigMapping
from retention.config.written import WrittenFile, written_section
from retention.core.bucket_names import bucket_of
from retention.errors import ConfigError

Listed = TypeVar("Listed", StreamConfig, TopicConfig, TableConfig)
Settings = TypeVar("Settings", bound=KeepingSettings)

UnlistedAction = Literal["keep", "warn", "fail"]

DEFAULTED: Mapping[type[ConfigMapping], type[ConfigMapping]] = {
    StreamConfig: StorageSettings,
    TopicConfig: KeepingSettings,
    TableConfig: RunSettings,
}
"""The model of those `defaults` that apply to a stream, a topic, or a table."""


class StreamInfo(ConfigMapping):
    """The output of `nats stream info --json`; only `config` matters here."""

    config: StreamConfig
    type: object = None
    created: object = None
    state: Any = None
    cluster: object = None
    domain: object = None
    mirror: object = None
    sources: object = None
    alternates: object = None
    ts: object = None
    offset: object = None
    limit: object = None
    total: object = None
    stream_name: object = None


class ConfigFile(ConfigMapping):
    """The keys of `retention.yaml`."""

    model_config = ConfigDict(title="retention.yaml")

    warehouse: Location = "."
    defaults: StorageSettings = StorageSettings()
    server_defaults: ServerDefaults = ServerDefaults()
    owner: str | None = Field(
        default=None, min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$"
    )
    unlisted: UnlistedAction = "warn"
    signing_key: Location | None = None
    ledger: Location | None = None
    groups: dict[str, Any] = Field(default={})
    streams: tuple[StreamConfig | StreamInfo, ...] = ()
    buckets: tuple[BucketConfig, ...] = ()
    topics: tuple[TopicConfig, ...] = ()
    tables: tuple[TableConfig, ...] = ()


@dataclass(frozen=True)
class Config:
    """A warehouse and its streams."""

    warehouse: str
    """The warehouse's location: an absolute path, or an `s3://` URI without a trailing slash."""
    streams: tuple[StreamConfig, ...] = ()
    """The configured streams; a topic is listed as the stream that implements it."""
    defaults: StorageSettings = field(default_factory=StorageSettings)
    file: str | None = None
    """The configuration file; None: a directory or prefix without one was named."""
    owner: Owner | None = None
    """The configuration as the owner of its streams; None: there is no file."""
    unlisted: UnlistedAction = "warn"
    """The action for a stream in the warehouse that neither this file nor another one lists."""
    written: WrittenFile = field(default=WrittenFile(), repr=False, compare=False)
    """The values of the file, and their lines."""
    tables: tuple[TableConfig, ...] = ()
    """The configured tables in place, with absolute locations."""
    signing_key: str | None = None
    """The location of the private key that signs exports, absolute; None: they are not signed."""
    ledger: str | None = None
    """The location of the ledger, absolute; None: there is none."""

    @classmethod
    def without_file(cls, warehouse: str) -> Config:
        """A configuration that names no stream.

        Raises:
            ConfigError: the warehouse is neither a path nor an `s3://` URI.
        """
        why = refused_location(warehouse)
        if why is not None:
            raise ConfigError(f"the warehouse {warehouse!r} {why}")
        return cls(absolute_location(warehouse, "here"))

    def stream(self, name: str) -> StreamConfig | None:
        """The stream of that name; None: it is not listed."""
        return self._by_name.get(name)

    def default_stream(self, name: str) -> StreamConfig:
        """The configuration of a stream that is not listed: defaults, any subject, no limit; keys can be purged.

        Raises:
            ConfigError: the name is not valid for a stream.
        """
        values = {"name": name, "subjects": [">"], "no_ack": True}
        if bucket_of(name) is not None:
            values["allow_rollup_hdrs"] = True
        return _with_defaults(parse_stream(values, f"stream {name!r}"), self.defaults)

    @cached_property
    def _by_name(self) -> dict[str, StreamConfig]:
        return {stream.name: stream for stream in self.streams}


def load_config(path: str | Path, content: bytes | None = None) -> Config:
    """Read `retention.yaml`, or the JSON of one stream as `nats stream info --json` prints it.

    Args:
        path: the file, a path or an `s3://` location.
        content: the content of the file, if it was already read, as on object stores.

    Raises:
        ConfigError: one line for every mistake in the file: `file:line: key: what, why, and the
            nearest valid choice`.
    """
    document = read_document(path, content)
    mistakes, beside = list(document.mistakes), str(document.path)
    if not isinstance(document.values, dict):
        raise ConfigError(f"{path}:1: is not a mapping; begin with `warehouse:` and `streams:`")
    _lift_single_stream(document)
    head = _read_head(document, mistakes)
    groups = Groups(document)
    written = _written(document, groups, mistakes) | _written_buckets(document, groups, mistakes)
    streams = _read_streams(written, mistakes)
    topics = _read_listed(TopicConfig, _of_list("topics", written), mistakes)
    tables = _read_listed(TableConfig, _of_list("tables", written), mistakes)
    mistakes += name_mistakes(streams, topics, tables)
    if head is not None:
        topics = {at: _with_defaults(topic, head.defaults) for at, topic in topics.items()}
        streams = {at: _with_defaults(stream, head.defaults) for at, stream in streams.items()}
        mistakes += storage_mistakes(head.warehouse, head.defaults, {**streams, **topics}, beside)
        streams = {at: _archived_at(stream, beside) for at, stream in streams.items()}
        topics = {at: _archived_at(topic, beside) for at, topic in topics.items()}
        tables = _located(tables, head, beside, mistakes)
        server = head.server_defaults
        kept = {at: stream_of_topic(topic, topic.settings(server)) for at, topic in topics.items()}
        mistakes += _setting_mistakes(kept)
    buckets = document.values.get("buckets")
    mistakes = [in_bucket_words(mistake, buckets) for mistake in groups.attributed(mistakes)]
    mistakes += groups.mistakes
    if mistakes or head is None:
        raise ConfigError(describe_mistakes(document, mistakes))
    listed = (*streams.values(), *kept.values())
    return Config(
        absolute_location(head.warehouse, beside),
        listed,
        _archived_at(head.defaults, beside),
        beside,
        owner_of(beside, head.owner),
        head.unlisted,
        WrittenFile(
            {
                (streams.get(at) or kept[at]).name: groups.written(at, values)
                for at, values in written.items()
                if at not in tables
            },
            written_section(document, "defaults"),
            written_section(document, "server_defaults"),
            {table.name: groups.written(at, written[at]) for at, table in tables.items()},
        ),
        tuple(tables.values()),
        head.signing_key and absolute_location(head.signing_key, beside),
        head.ledger and absolute_location(head.ledger, beside),
    )


def parse_stream(values: Mapping[str, object], origin: str) -> StreamConfig:
    """Read one stream's configuration as the server writes it, on its own or in a stream info.

    Args:
        values: the parsed JSON.
        origin: its source, for error messages.

    Raises:
        ConfigError: all mistakes, one per line.
    """
    config = values.get("config")
    inner = config if isinstance(config, Mapping) else values
    stream, mistakes = read_model(StreamConfig, inner, ())
    if stream is None:
        lines = [f"{'.'.join(map(str, mistake.place))}: {mistake.text}" for mistake in mistakes]
        raise ConfigError("\n".join(f"{origin}: {line}" for line in lines))
    return stream


def _lift_single_stream(document: ConfigDocument) -> None:
    """Wrap a file with one stream's info, or its bare config, into a list of that stream."""
    values = document.values
    is_info = "config" in values and "streams" not in values
    if is_info or ("name" in values and not values.keys() & ConfigFile.model_fields.keys()):
        document.values = {"streams": [values]}
        lifted = {("streams", 0, *place): line for place, line in document.lines.items()}
        document.lines.update(lifted)


def _read_head(document: ConfigDocument, mistakes: list[Mistake]) -> ConfigFile | None:
    values = dict(document.values)
    for listed in ("streams", "buckets", "topics", "tables"):
        if isinstance(values.get(listed), list):
            values[listed] = []
    values.pop("groups", None)
    head, head_mistakes = read_model(ConfigFile, values, ())
    mistakes += head_mistakes
    if head is not None:
        mistakes += ledger_mistakes(head.ledger, head.warehouse, str(document.path))
    return head


def _written(
    document: ConfigDocument, groups: Groups, mistakes: list[Mistake]
) -> dict[Place, Mapping[str, Any]]:
    """The values of each stream, topic and table, including inherited ones, by its place."""
    written: dict[Place, Mapping[str, object]] = {}
    for at, item in _listed(document, "streams", mistakes):
        is_info = isinstance(item.get("config"), dict)
        if is_info:
            mistakes += _unknown_info_keys(item, at)
        place = (*at, "config") if is_info else at
        written[place] = groups.inherit(place, item["config"] if is_info else item)
    for kind in ("topics", "tables"):
        for place, item in _listed(document, kind, mistakes):
            written[place] = groups.inherit(place, item)
    return written


def _written_buckets(
    document: ConfigDocument, groups: Groups, mistakes: list[Mistake]
) -> dict[Place, Mapping[str, object]]:
    """The values of the stream of each bucket, by the bucket's place; none if they have mistakes."""
    written: dict[Place, Mapping[str, object]] = {}
    for place, item in _listed(document, "buckets", mistakes):
        bucket, own_mistakes = read_model(BucketConfig, item, place)
        mistakes += own_mistakes
        if bucket is not None:
            for key, stream_key in STREAM_KEY.items():
                if (*place, key) in document.lines:
                    document.lines[*place, stream_key] = document.lines[*place, key]
            written[place] = stream_values(groups.inherit(place, with_stream_keys(item)))
    return written


def _read_streams(
    written: Mapping[Place, Mapping[str, object]], mistakes: list[Mistake]
) -> dict[Place, StreamConfig]:
    listed = _of_list("streams", written) | _of_list("buckets", written)
    streams = _read_listed(StreamConfig, listed, mistakes)
    mistakes += cross_stream_mistakes(listed, streams)
    return streams


def _of_list(
    key: str, written: Mapping[Place, Mapping[str, object]]
) -> dict[Place, Mapping[str, object]]:
    return {place: values for place, values in written.items() if place[0] == key}


def _read_listed(
    model: type[Listed], written: Mapping[Place, Mapping[str, object]], mistakes: list[Mistake]
) -> dict[Place, Listed]:
    """The models of the values without mistakes, by their places."""
    listed: dict[Place, Listed] = {}
    for place, values in written.items():
        item, own_mistakes = read_model(model, values, place)
        mistakes += own_mistakes
        if item is not None:
            listed[place] = item
    return listed


def _listed(
    document: ConfigDocument, key: str, mistakes: list[Mistake]
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The mappings of a list in the document with their places; every other item is recorded as a mistake."""
    listed = document.values.get(key)
    for at, item in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(item, dict):
            yield (key, at), item
        else:
            mistakes.append(Mistake((key, at), f"{item!r} is not a mapping; write `- name: …`"))


def _unknown_info_keys(info: Mapping[str, object], place: Place) -> list[Mistake]:
    text = "there is no such key beside `config`; write our settings into it"
    return [Mistake((*place, key), text) for key in info if key not in StreamInfo.model_fields]


def _with_defaults(stream: Listed, defaults: StorageSettings) -> Listed:
    unset = DEFAULTED[type(stream)].model_fields.keys() - stream.model_fields_set
    return stream.model_copy(update={key: getattr(defaults, key) for key in unset})


def _archived_at(settings: Settings, beside: str) -> Settings:
    """The settings with the archive's location made absolute, as the warehouse's is."""
    if settings.archive is None:
        return settings
    return settings.model_copy(update={"archive": absolute_location(settings.archive, beside)})


def _located(
    tables: Mapping[Place, TableConfig], head: ConfigFile, beside: str, mistakes: list[Mistake]
) -> dict[Place, TableConfig]:
    """The tables with absolute locations and the defaults of the file."""
    located = {
        at: _with_defaults(table, head.defaults).model_copy(
            update={"location": absolute_table_location(table.location, beside)}
        )
        for at, table in tables.items()
    }
    if located:
        mistakes += location_mistakes(located, absolute_location(head.warehouse, beside))
    return located


def _setting_mistakes(topics: Mapping[Place, TopicStream]) -> Iterator[Mistake]:
    for place, topic in topics.items():
        for reason in setting_refusals(topic.settings, topic.of.profile):
            yield Mistake((*place, reason.keys[0]), reason.text)
