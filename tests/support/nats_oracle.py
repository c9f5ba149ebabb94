"""A real nats-server for tests: started on a free port, filled by restore, queried, backed up, stopped."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import nats
import pyarrow as pa
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo

from retention.core.message_rows import complete_rows
from retention.formats.nats.backup import RAW_ROWS, write_backup

Answer = TypeVar("Answer")
Json = dict[str, Any]
Published = tuple[str, bytes, Mapping[str, str] | None]
"""Subject, payload and headers of a message to publish."""

CHUNK_BYTES = 128 << 10
SMALL_CHUNK_BYTES = 64 << 10
STARTED_WITHIN = 20.0
TIMEOUT = 60.0
_ANCHOR = {"name": "ANCHOR", "mirror": {"name": "NOWHERE"}, "storage": "file", "num_replicas": 1}
"""A stream without subjects. While it exists, the server keeps its directory of streams after the
last test stream is deleted; otherwise the server would delete the directory later, during the next
test."""


@dataclass(frozen=True)
class Message:
    """One stored message; `headers` is the exact block, empty for none."""

    seq: int
    subject: str
    ts_ns: int
    headers: bytes = b""
    payload: bytes = b""


class ServerError(RuntimeError):
    """An error in the server's answer to a request; `code` is the server's error code, `reason` its text."""

    def __init__(self, subject: str, error: Json) -> None:
        super().__init__(f"{subject}: {error}")
        self.code = error.get("err_code")
        self.reason = str(error.get("description"))


class _Subscription(JetStreamContext.PushSubscription):
    """A client subscription that updates its state after the counted messages.

    If a message is counted before it arrives, the client's watch treats its key as one without a history.
    """

    async def consumer_info(self) -> ConsumerInfo:
        info = await super().consumer_info()
        counted = info.delivered.consumer_seq if info.delivered else 0
        while self.delivered < counted:
            await asyncio.sleep(0.001)
        return info


JetStreamContext.PushSubscription = _Subscription  # type: ignore[misc]


class Nats:
    """A connection to one server, synchronous."""

    def __init__(self, runner: asyncio.Runner, client: Any, workdir: Path) -> None:
        self._runner = runner
        self._client = client
        self._workdir = workdir

    @property
    def url(self) -> str:
        """The address for clients."""
        return str(self._client.connected_url.geturl())

    def restore(
        self,
        name: str,
        config: Mapping[str, Any],
        messages: Sequence[Message] | pa.Table,
        last_seq: int | None = None,
        *,
        consumers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Json:
        """Create stream `name` from messages (a table of shape `RAW_ROWS` or a list); returns the stream's info.

        `config` uses the server's JSON names; name, subjects and storage have defaults.
        """
        rows = messages if isinstance(messages, pa.Table) else raw_rows(messages)
        full = {"name": name, "subjects": [f"{name}.>"], "storage": "file", **config}
        state = state_of(rows, last_seq, full["storage"])
        path = self._workdir / f"{name}.restore"
        write_backup(path, state, consumers or {}, [rows])
        state["consumer_count"] = len(consumers or {})
        return self.restore_archive(full, state, path)

    def restore_archive(self, config: Mapping[str, Any], state: Json, path: Path) -> Json:
        """Create a stream from an archive with `state`; returns the stream's info."""
        return self._run(self._restore(config["name"], {"config": config, "state": state}, path))

    def update(self, config: Mapping[str, Any], within: float = TIMEOUT) -> Json:
        """`STREAM.UPDATE` with a full config, with a timeout in seconds; returns the stream's info."""
        return self.request(f"STREAM.UPDATE.{config['name']}", config, within)

    def info(self, name: str, within: float = TIMEOUT) -> Json:
        """`STREAM.INFO`: its `config` and `state`."""
        return self.request(f"STREAM.INFO.{name}", {}, within)

    def delete(self, name: str) -> None:
        """`STREAM.DELETE`."""
        self.request(f"STREAM.DELETE.{name}", {})

    def survivors(self, name: str) -> list[Message]:
        """All messages of the stream, in order of sequence."""
        return self._run(self._survivors(name))

    def snapshot(self, name: str, path: Path) -> Json:
        """Back the stream up (v2) into `path`; returns the answer with `config` and `state`."""
        return self._run(self._snapshot(name, path))

    def snapshot_in_use(
        self, name: str, path: Path, load: Iterable[Sequence[Published]], pause_s: float = 0
    ) -> Json:
        """Back the stream up in 64 KiB chunks, and publish part of a load after each; returns the answer with `state`.

        A server continues after the ack of a chunk, 4 MiB ahead, so removals due to the load happen
        while it writes the archive.

        Args:
            name: the stream.
            path: the archive.
            load: the messages to publish after each chunk.
            pause_s: seconds to wait before the ack of the first chunk.
        """
        small = {"chunk_size": SMALL_CHUNK_BYTES, "window_size": SMALL_CHUNK_BYTES}
        return self._run(self._snapshot(name, path, small, iter(load), pause_s))

    def publish(self, messages: Iterable[Published]) -> None:
        """Publish (subject, payload, headers) in order; returns when all are stored."""
        self._run(self._publish(messages))

    def publish_one(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> Json:
        """Publish one message; returns the ack, which may contain an `error`."""
        request = self._client.request(subject, payload, timeout=TIMEOUT, headers=_plain(headers))
        reply = self._run(request)
        answer: Json = json.loads(reply.data)
        return answer

    def publish_blocks(self, messages: Iterable[tuple[str, bytes, bytes]]) -> list[Json]:
        """Publish (subject, header block, payload) unchanged; returns the ack of each, or its `error`."""
        return self._run(self._publish_blocks(messages))

    def request(self, subject: str, body: Mapping[str, Any], within: float = TIMEOUT) -> Json:
        """A JetStream API request, with a timeout in seconds.

        Raises:
            ServerError: the answer is an error.
        """
        return self._run(self._api(subject, body, within))

    def _run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.run(coroutine)

    async def _api(self, subject: str, body: Mapping[str, Any], within: float = TIMEOUT) -> Json:
        content = json.dumps(body).encode()
        reply = await self._client.request(f"$JS.API.{subject}", content, timeout=within)
        return _checked(subject, reply.data)

    async def _restore(self, name: str, request: Json, path: Path) -> Json:
        subject = (await self._api(f"STREAM.RESTORE.{name}", request))["deliver_subject"]
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                reply = await self._client.request(subject, chunk, timeout=TIMEOUT)
                if reply.data:
                    _checked(subject, reply.data)
        reply = await self._client.request(subject, b"", timeout=TIMEOUT)
        return _checked(subject, reply.data)

    async def _survivors(self, name: str) -> list[Message]:
        kept = []
        state = (await self._api(f"STREAM.INFO.{name}", {}))["state"]
        after = state["first_seq"] - 1
        for _ in range(state["messages"]):
            request = {"seq": after + 1, "next_by_subj": ">"}
            stored = (await self._api(f"STREAM.MSG.GET.{name}", request))["message"]
            kept.append(_message(stored))
            after = stored["seq"]
        return kept

    async def _snapshot(
        self,
        name: str,
        path: Path,
        sizes: Mapping[str, int] | None = None,
        load: Iterator[Sequence[Published]] | None = None,
        pause_s: float = 0,
    ) -> Json:
        inbox = self._client.new_inbox()
        arrived = await self._client.subscribe(inbox, pending_bytes_limit=-1)
        request = {"deliver_subject": inbox, **(sizes or {})}
        answer = await self._api(f"STREAM.SNAPSHOT.{name}", request)
        with path.open("wb") as file:
            while (chunk := await arrived.next_msg(timeout=TIMEOUT)).data:
                file.write(chunk.data)
                await self._publish(next(load, ()) if load else ())
                await asyncio.sleep(pause_s)
                pause_s = 0
                if chunk.reply:
                    await self._client.publish(chunk.reply, b"")
        await arrived.unsubscribe()
        return answer

    async def _publish(self, messages: Iterable[Published]) -> None:
        held: Published | None = None
        for one in messages:
            if held is not None:
                await self._client.publish(held[0], held[1], headers=_plain(held[2]))
            held = one
        if held is not None:  # its ack covers all before it
            headers = _plain(held[2])
            reply = await self._client.request(held[0], held[1], timeout=TIMEOUT, headers=headers)
            _checked(held[0], reply.data)

    async def _publish_blocks(self, messages: Iterable[tuple[str, bytes, bytes]]) -> list[Json]:
        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox)
        sent = 0
        for subject, block, payload in messages:
            lengths = f"{len(block)} {len(block) + len(payload)}"
            head = f"HPUB {subject} {inbox} {lengths}\r\n".encode()
            await self._client._send_command(head + block + payload + b"\r\n")
            sent += 1
        await self._client.flush()
        acks = [json.loads((await answers.next_msg(timeout=TIMEOUT)).data) for _ in range(sent)]
        await answers.unsubscribe()
        return acks


@contextmanager
def server(settings: str = "", store: Path | None = None) -> Iterator[Nats]:
    """A server with JetStream on the loopback interface.

    Args:
        settings: JetStream settings of its configuration file.
        store: the directory of streams, possibly with streams of an earlier server; default: a
            temporary one.
    """
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as runner:
        workdir = Path(directory)
        binary = Path(sys.executable).parent / "nats-server"
        (workdir / "settings").write_text(f"server_name: oracle\n{settings}")
        options = ["-c", f"{workdir}/settings", "-a", "127.0.0.1", "-p", "-1", "-js"]
        places = [
            "-sd",
            str(store or workdir / "store"),
            "--ports_file_dir",
            directory,
            "-l",
            f"{workdir}/log",
        ]
        process = subprocess.Popen([str(binary), *options, *places])
        try:
            url = runner.run(_url(process, workdir))
            client = runner.run(nats.connect(url, allow_reconnect=False))
            started = Nats(runner, client, workdir)
            started.request("STREAM.CREATE.ANCHOR", _ANCHOR)
            yield started
            runner.run(client.close())
        finally:
            process.terminate()
            process.wait(STARTED_WITHIN)


def raw_rows(messages: Sequence[Message]) -> pa.Table:
    """The messages as a table of shape `RAW_ROWS`."""
    rows = [{**vars(message), "headers": message.headers or None} for message in messages]
    return pa.Table.from_pylist(rows, schema=RAW_ROWS)


def messages_of(rows: pa.Table) -> list[Message]:
    """A table of shape `RAW_ROWS` as messages."""
    return [Message(**row | {"headers": row["headers"] or b""}) for row in rows.to_pylist()]


def state_of(rows: pa.Table, last_seq: int | None, storage: str) -> Json:
    """The `state.json` of a stream with exactly these rows."""
    seqs = rows["seq"].to_pylist()
    last = last_seq if last_seq is not None else (seqs[-1] if seqs else 0)
    sizes = complete_rows(rows, "memory" if storage == "memory" else "file")["size"]
    return {
        "messages": len(seqs),
        "bytes": sum(sizes.to_pylist()),
        "first_seq": seqs[0] if seqs else last + 1,
        "last_seq": last,
    }


async def _url(process: subprocess.Popen[bytes], directory: Path) -> str:
    for _ in range(int(STARTED_WITHIN * 50)):
        for ports in directory.glob(f"*_{process.pid}.ports"):
            urls = json.loads(ports.read_text() or "{}").get("nats")
            if urls:
                return str(urls[0])
        await asyncio.sleep(0.02)
    raise TimeoutError(f"nats-server did not start: {(directory / 'log').read_text()}")


def _plain(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if headers is None else dict(headers)


def _checked(subject: str, data: bytes) -> Json:
    answer: Json = json.loads(data)
    if "error" in answer:
        raise ServerError(subject, answer["error"])
    return answer


def _message(stored: Json) -> Message:
    seconds, _, fraction = stored["time"].rstrip("Z").partition(".")
    whole = pa.scalar(seconds).cast(pa.timestamp("s")).value
    return Message(
        seq=stored["seq"],
        subject=stored["subject"],
        ts_ns=whole * 1_000_000_000 + int(fraction.ljust(9, "0") or 0),
        headers=base64.b64decode(stored.get("hdrs", "")),
        payload=base64.b64decode(stored.get("data", "")),
    )
