"""A JetStream stream of a live server: its state, single messages, and all of them in bulk, exactly as stored."""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from retention.core.units import parse_any_instant
from retention.errors import RefusedError, ServerError
from retention.nats.api import NO_MESSAGE, ApiError, call
from retention.nats.connection import BACK_WITHIN_S, Connection
from retention.nats.pull import Ended, Limits, LostDeliveryError, Pull, Wait
from retention.storage.elapsed import elapsed_ns

_NS = 10**9
_SHORTEST = 0.1
"""The part of the time between two batches that is waited even if the caller kept the last one longer than that."""


@dataclass(frozen=True)
class MirrorInfo:
    """A mirror's origin: its name, the messages it is behind, and the time since it heard of it (-1: never)."""

    origin: str
    lag: int
    active_ns: int


@dataclass(frozen=True)
class StreamInfo:
    """The answer of `STREAM.INFO`."""

    name: str
    created: str
    """The server's text; the only identity of a stream (a restored one has a new one, too)."""
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    num_deleted: int
    """Sequences between the first and the last that are gone."""
    deleted: np.ndarray
    """Sequences, ascending, int64; empty unless asked for."""
    first_ts_ns: int | None
    last_ts_ns: int | None
    """None before the first message."""
    config: dict[str, Any]
    """The server's JSON."""
    is_sealed: bool
    mirror: MirrorInfo | None
    num_consumers: int


@dataclass(frozen=True)
class StoredMessage:
    """A message as it is stored; `headers` is the exact block, None without one."""

    seq: int
    ts_ns: int
    subject: str
    headers: bytes | None
    payload: bytes


@dataclass(frozen=True)
class ConsumerInfo:
    """A consumer's state as far as the server tells it: its floor, but not which messages above it are settled."""

    name: str
    config: dict[str, Any]
    ack_floor: int
    """A stream sequence: this one and all below are settled."""
    delivered: int
    """A stream sequence: none above was delivered."""
    num_ack_pending: int
    created: str
    at: str
    """The server's time of the answer."""


class RemoteStream:
    """A stream of a live server, by its name, on one connection."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    def info(self, *, deleted: bool = False) -> StreamInfo:
        """The stream's state now; `deleted` asks for the sequences that are gone between the first and the last.

        Raises:
            UsageError: There is no such stream, or a permission is missing.
            ServerError: The server did not answer.
        """
        body = {"deleted_details": True} if deleted else None
        answer = self._connection.run(call(self._connection, f"STREAM.INFO.{self.name}", body))
        return _info_of(answer)

    def message(self, seq: int) -> StoredMessage | None:
        """One message (`STREAM.MSG.GET`); None if the stream does not hold it."""
        return self._message({"seq": seq})

    def next_message(self, seq: int) -> StoredMessage | None:
        """The first message at or above a sequence (`STREAM.MSG.GET`); None if the stream holds none there."""
        return self._message({"seq": seq, "next_by_subj": ">"})

    def _message(self, wanted: dict[str, Any]) -> StoredMessage | None:
        try:
            work = call(self._connection, f"STREAM.MSG.GET.{self.name}", wanted)
            stored = self._connection.run(work)["message"]
        except ApiError as error:
            if error.code == NO_MESSAGE:
                return None
            raise
        headers = stored.get("hdrs")
        return StoredMessage(
            stored["seq"],
            parse_any_instant(stored["time"]),
            stored["subject"],
            base64.b64decode(headers) if headers else None,
            base64.b64decode(stored.get("data", "")),
        )

    def read(
        self, first: int, last: int, batch_messages: int, batch_bytes: int
    ) -> Generator[pa.Table, None, None]:
        """Messages `first` to `last` that the server holds, ascending, in tables of shape `MESSAGES`; none is empty.

        It outlives a restart of the server: it reconnects, and goes on after the last message that it yielded.

        Raises:
            RefusedError: The stream was made anew in between.
            UsageError: The stream or a permission is missing.
            ServerError: The server did not come back, or gives nothing.
        """
        limits = Limits(batch_messages, batch_bytes)
        for batch in self._batches(first, limits, last, None):
            if batch.num_rows:
                yield batch

    def follow(
        self, first: int, batch_messages: int, batch_bytes: int, linger_s: float
    ) -> Generator[pa.Table, None, None]:
        """Messages from `first` on, for ever, in tables of shape `MESSAGES`.

        A table comes when it is full, and otherwise `linger_s` seconds after the one before, however long the caller
        kept that, with what is there: it may be empty. If the server has more by then, it comes up to `linger_s` later.

        Raises:
            RefusedError: The stream was made anew in between, or ends below `first` - 1.
            UsageError: The stream or a permission is missing.
            ServerError: The server did not come back.
        """
        return self._batches(first, Limits(batch_messages, batch_bytes), None, linger_s)

    def consumers(self) -> list[ConsumerInfo]:
        """All consumers of the stream."""
        consumers: list[ConsumerInfo] = []
        while True:
            request = f"CONSUMER.LIST.{self.name}"
            page = self._connection.run(call(self._connection, request, {"offset": len(consumers)}))
            entries = page.get("consumers") or []
            consumers += [_consumer_of(entry) for entry in entries]
            if not entries or len(consumers) >= page["total"]:
                return consumers

    def _batches(
        self, first: int, limits: Limits, last: int | None, linger_s: float | None
    ) -> Generator[pa.Table, None, None]:
        position, created = first, self._check(first, None)
        patience = _Patience(self._connection, self.name)
        while last is None or position <= last:
            with self._pull(position, limits) as pull:
                if last is not None and not pull.pending:
                    return
                for batch in _filled(self._connection, pull, last, linger_s):
                    if batch.num_rows:
                        position = batch.column("seq")[-1].as_py() + 1
                        patience.restart()
                    yield batch
                if pull.has_reached(last):
                    return
            patience.check(pull.gone)
            self._connection.run(self._connection.back())
            created = self._check(position, created)

    @contextmanager
    def _pull(self, first: int, limits: Limits) -> Iterator[Pull]:
        pull = Pull(self._connection, self.name, limits)
        self._connection.run(pull.open(first))
        try:
            yield pull
        finally:
            if not self._connection.is_closed:
                self._connection.run(pull.close())

    def _check(self, first: int, created: str | None) -> str:
        """The time of the stream's creation; refused if it is another than `created`, or ends below `first` - 1."""
        info = self.info()
        if created is not None and info.created != created:
            raise RefusedError(
                f"stream {self.name} at {self._connection.server} was created at {info.created}, and the one that was "
                f"being read at {created}: it was deleted and made anew, or restored; nothing more was read; start "
                "again, so that the two are compared"
            )
        if first > info.last_seq + 1:
            raise RefusedError(
                f"stream {self.name} at {self._connection.server} ends at sequence {info.last_seq}, and reading was to "
                f"begin at {first}: it is not the stream that was read before; compare the two, then begin elsewhere"
            )
        return info.created


class _Patience:
    """A limit of the time in which a stream gives nothing though it has messages."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        self._stream = stream
        self.restart()

    def restart(self) -> None:
        self._since = elapsed_ns()

    def check(self, why: str | None) -> None:
        """Raise if the patience is over."""
        if elapsed_ns() - self._since > BACK_WITHIN_S * _NS:
            raise ServerError(
                f"stream {self._stream} at {self._connection.server} has messages, and gave none for "
                f"{BACK_WITHIN_S:g} s ({why or 'no reason given'}); look at the server and the account's limits, then "
                "run it again"
            )


def _filled(
    connection: Connection, pull: Pull, last: int | None, linger_s: float | None
) -> Iterator[pa.Table]:
    """The batches of one consumer until it is lost, or has given all."""
    ended, cut_ns = None, elapsed_ns()
    while ended not in (Ended.LOST, Ended.REACHED):
        wait = None if linger_s is None else _wait(linger_s, (elapsed_ns() - cut_ns) / _NS)
        ended = connection.run(pull.fill(last, wait))
        cut_ns = elapsed_ns()
        try:
            batch = pull.take()
        except LostDeliveryError as error:
            pull.gone = str(error)
            return
        if last is not None:
            wanted = int(np.searchsorted(batch.column("seq").to_numpy(), last, side="right"))
            batch = batch.slice(0, wanted)
        if batch.num_rows or ended is Ended.QUIET:
            yield batch


def _wait(linger_s: float, passed_s: float) -> Wait:
    """The wait for the next batch of a stream that is followed, `passed_s` after the one before was taken."""
    return Wait(max(linger_s - passed_s, linger_s * _SHORTEST), linger_s)


def _info_of(answer: dict[str, Any]) -> StreamInfo:
    state, config = answer["state"], answer["config"]
    messages, deleted = state["messages"], state.get("deleted") or []
    mirror = answer.get("mirror")
    return StreamInfo(
        name=config["name"],
        created=answer["created"],
        first_seq=state["first_seq"],
        last_seq=state["last_seq"],
        messages=messages,
        bytes=state["bytes"],
        num_deleted=state.get("num_deleted", 0) if messages else 0,
        deleted=np.array(deleted if messages else [], np.int64),
        first_ts_ns=_time_of(state["first_ts"]),
        last_ts_ns=_time_of(state["last_ts"]),
        config=config,
        is_sealed=bool(config.get("sealed")),
        mirror=_mirror_of(mirror) if mirror else None,
        num_consumers=state["consumer_count"],
    )


def _time_of(text: str) -> int | None:
    """Nanoseconds since the epoch; None for the zero time of a stream without messages."""
    return None if text.startswith("0001-") else parse_any_instant(text)


def _mirror_of(entry: dict[str, Any]) -> MirrorInfo:
    return MirrorInfo(entry["name"], entry.get("lag", 0), entry.get("active", -1))


def _consumer_of(entry: dict[str, Any]) -> ConsumerInfo:
    return ConsumerInfo(
        name=entry["name"],
        config=entry["config"],
        ack_floor=entry["ack_floor"]["stream_seq"],
        delivered=entry["delivered"]["stream_seq"],
        num_ack_pending=entry["num_ack_pending"],
        created=entry["created"],
        at=entry.get("ts", ""),
    )
