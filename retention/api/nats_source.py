"""The Spark data source `nats`: a stream of a live NATS server by options, and its messages for tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from retention.dialects.jetstream_copy import CREATED
from retention.engines.spark.live_offsets import LiveState, Reach, Span, refuse_changed
from retention.engines.spark.live_source import LiveReading, LiveSource
from retention.errors import UsageError
from retention.nats.deliveries import MESSAGES

if TYPE_CHECKING:
    from retention.nats.connection import Connection
    from retention.nats.stream import RemoteStream, StreamInfo

FRAME = pa.schema([*MESSAGES, pa.field(CREATED, pa.string(), nullable=False)])
"""The columns of messages, and the creation time of their stream."""
_BATCH_MESSAGES = 20_000
_BATCH_BYTES = 8 << 20
_PARTITIONS = 2
_COMMON = ("stream", "path", "server", "context", "start", "partitions")
OPTIONS = {
    False: (*_COMMON, "end"),
    True: (*_COMMON, "maxMessagesPerTrigger", "failOnDataLoss"),
}
"""The options of a batch query, and of a streaming query (True)."""
_SECRETS = ("user", "password", "token", "creds", "nkey", "user_jwt", "seed", "jwt", "key", "cert")


class NatsSource(LiveSource):
    """A stream, read by `spark.read.format("nats")` and `spark.readStream.format("nats")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nats"

    def all_columns(self) -> pa.Schema:
        """The columns of messages of a stream."""
        return FRAME

    def reading(self, *, is_streaming: bool) -> LiveReading:
        """The stream and the sequences that the options name.

        Raises:
            UsageError: an option is missing or wrong, or has a secret.
        """
        return reading_of(self.options, is_streaming=is_streaming)


@dataclass(frozen=True)
class NatsStream:
    """A stream of a live server; each process that asks it connects with the identity that it finds on its machine."""

    name: str
    server: str | None
    context: str | None

    def columns(self) -> pa.Schema:
        """The columns of messages, and the creation time of their stream, its identity."""
        return FRAME

    def state(self) -> LiveState:
        """The stream's state now.

        Raises:
            UsageError: there is no such stream, it is a work queue or an interest stream, or a permission is missing.
            ServerError: the server cannot be reached.
        """
        with self._connected() as connection:
            return _state_of(self._remote(connection).info(), connection)

    def tables(self, span: Span) -> Iterator[pa.Table]:
        """The messages of a span that the server holds, ascending.

        Raises:
            RefusedError: the stream was made anew; or it lost messages before they were read, and the span fails then.
            UsageError: the stream or a permission is missing.
            ServerError: the server cannot be reached.
        """
        with self._connected() as connection:
            remote = self._remote(connection)
            refuse_changed(span, _state_of(remote.info(), connection), span.first - 1)
            read_to = span.first - 1
            for rows in remote.read(span.first, span.last, _BATCH_MESSAGES, _BATCH_BYTES):
                read_to = contiguous(rows, read_to)
                created = pa.repeat(span.created, rows.num_rows)
                yield rows.append_column(FRAME.field(CREATED), created)
            refuse_changed(span, _state_of(remote.info(), connection), read_to)

    def _connected(self) -> Connection:
        from retention.nats.connection import Connection
        from retention.nats.settings import settings_of

        return Connection.open(settings_of(self.server, self.context))

    def _remote(self, connection: Connection) -> RemoteStream:
        from retention.nats.stream import RemoteStream

        return RemoteStream(connection, self.name)


def reading_of(options: Mapping[str, str], *, is_streaming: bool) -> LiveReading:
    """The stream and the sequences that options name.

    Args:
        options: `stream` or `path`, `server` or `context`, `start`, `partitions`; of a batch `end`, of a streaming
            query `maxMessagesPerTrigger` and `failOnDataLoss`. Spark gives their names in lower case.
        is_streaming: whether a streaming query has them.

    Raises:
        UsageError: an option is missing or wrong, or has a secret.
    """
    _refuse_others(options, is_streaming=is_streaming)
    begin, end = _number(options, "start", 1), _number(options, "end", None)
    if end is not None and begin is not None and end < begin:
        raise UsageError(f"the option `end` is {end}, which is below `start`, {begin}")
    return LiveReading(
        stream=NatsStream(_stream(options), _server(options), options.get("context") or None),
        reach=Reach(begin or 1, fails_on_loss=_switch(options, "failOnDataLoss")),
        end=end,
        partitions=_number(options, "partitions", _PARTITIONS) or _PARTITIONS,
        batch_messages=_number(options, "maxMessagesPerTrigger", None),
    )


def _refuse_others(options: Mapping[str, str], *, is_streaming: bool) -> None:
    known = OPTIONS[is_streaming]
    lower = [name.lower() for name in known]
    for option in options:
        if option.lower() in _SECRETS:
            raise UsageError(
                f"the format nats takes no option `{option}`: Spark would copy it to every task; name a context of the "
                "NATS command line (`nats context add`) that each worker has, or set NATS_CREDS for the workers"
            )
        if option.lower() not in lower:
            what = "a streaming query" if is_streaming else "a batch query"
            raise UsageError(
                f"the format nats has no option `{option}` for {what}; it has {', '.join(known)}"
            )


def _server(options: Mapping[str, str]) -> str | None:
    server = options.get("server") or None
    if server is None and not options.get("context"):
        raise UsageError(
            'no server is named: add .option("server", "nats://HOST:PORT"), or .option("context", NAME), a context of '
            "the NATS command line that each worker has"
        )
    if server is not None and any("@" in url for url in server.split(",")):
        hosts = ", ".join(
            urlsplit(f"//{url.rpartition('@')[2]}").netloc for url in server.split(",")
        )
        raise UsageError(
            f"the option `server` ({hosts}) holds a user or a token: Spark would copy it to every task; leave it out, "
            "and name a context of the NATS command line (`nats context add`) that each worker has"
        )
    return server


def _stream(options: Mapping[str, str]) -> str:
    names = {options[name] for name in ("stream", "path") if options.get(name)}
    if len(names) != 1:
        raise UsageError(
            'name one stream of the server: by .option("stream", NAME), or by load(NAME)'
            + (f", not both {' and '.join(sorted(names))}" if names else "")
        )
    name = names.pop()
    if any(letter in name for letter in ".*> \t\r\n/\\"):
        raise UsageError(
            f"{name!r} is no name of a stream: names have no dots, blanks, slashes or wildcards"
        )
    return name


def _number(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = _value(options, name)
    if text is None:
        return default
    if not (text.isdecimal() and text.isascii() and 0 < int(text) < 2**63):
        raise UsageError(f"the option `{name}` is a whole number from 1 on, not {text!r}")
    return int(text)


def _switch(options: Mapping[str, str], name: str) -> bool:
    text = _value(options, name) or "true"
    if text.lower() not in ("true", "false"):
        raise UsageError(f"the option `{name}` is true or false, not {text!r}")
    return text.lower() == "true"


def _value(options: Mapping[str, str], name: str) -> str | None:
    """The value of an option, whose name Spark gives in lower case in streaming queries."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def _state_of(info: StreamInfo, connection: Connection) -> LiveState:
    title = f"stream {info.name} at {connection.server}"
    _refuse_consumed(title, info)
    return LiveState(title, info.created, max(info.first_seq, 1), info.last_seq)


def _refuse_consumed(title: str, info: StreamInfo) -> None:
    """Refuse a stream that removes messages when they are consumed."""
    policy = str(info.config.get("retention", "limits"))
    if policy != "limits":
        copy = f"{info.name}_ARCHIVE"
        raise UsageError(
            f"{title} has retention {policy}: a reader would take its messages, or hold them back; make a mirror "
            f"(`nats stream add {copy} --mirror {info.name} --storage file --retention limits --defaults`), and read "
            f"{copy}"
        )


def contiguous(rows: pa.Table, read_to: int) -> int:
    """The end of the sequences without a gap after `read_to`; `rows` ascend, and begin after it."""
    seqs = rows.column("seq").to_numpy()
    if seqs[0] != read_to + 1:
        return read_to
    if seqs[-1] == read_to + len(seqs):
        return int(seqs[-1])
    gaps = (seqs[1:] != seqs[:-1] + 1).nonzero()[0]
    return int(seqs[gaps[0]])
