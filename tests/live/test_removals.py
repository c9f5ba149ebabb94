"""The same purges and deletes on a server and on a stream here, in sequence."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from retention.apply.requested import remove_now
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import RetentionError
from retention.inspect.state import contents_of
from retention.rules.requests import delete_request, purge_request
from tests.support.laying import START, File, Laid, lay
from tests.support.nats_oracle import Json, Message, Nats, ServerError, server
from tests.support.plain_store import opened_stream, store_of

pytestmark = pytest.mark.live

STREAMS, REQUESTS = 10, 12
NINE: list[Json] = [
    *({}, {"filter": ">"}, {"filter": ""}, {"seq": 0}, {"seq": 5}, {"seq": 1}, {"seq": 10}),
    *({"seq": 15}, {"keep": 4}, {"keep": 9}, {"keep": 20}, {"filter": ">", "seq": 15}),
    *({"filter": "T.c"}, {"filter": "T.c", "keep": 1}, {"filter": "T.c", "seq": 7}),
    *({"filter": "T.c", "seq": 100}, {"filter": "T.c", "seq": 1}, {"filter": "*.a", "keep": 2}),
    *({"filter": "T.>", "seq": 15}, {"filter": "T.*.x"}, {"filter": "no.*b"}, {"filter": "T"}),
    *({"seq": 5, "keep": 2}, {"filter": "T.c", "seq": 5, "keep": 2}),
]


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as running:
        yield running


class Pair:
    """A stream on the server and the same here."""

    def __init__(
        self,
        nats: Nats,
        folder: Path,
        files: Sequence[File],
        **config: Any,
    ) -> None:
        self.nats = nats
        stored = [Message(m.seq, m.subject, m.ts_ns) for file in files for m in file.messages]
        # A server can only seal an existing stream.
        later = {name: config.pop(name) for name in ("sealed",) if name in config}
        full = nats.restore("T", {"storage": "file", **config}, stored)["config"]
        if later:
            nats.update({**full, **later})
        self.here: OpenedStream = opened_stream(folder, START, subjects=("T.>",), **config, **later)
        lay(self.here, files)

    def ask(self, kind: str, body: Json) -> None:
        """Send the request to both, and compare the answers and the remaining messages."""
        assert self._ours(kind, body) == self._theirs(kind, body), (kind, body)
        state = self.nats.info("T")["state"]
        store = store_of(self.here)
        files, counters = store.versions[-1]
        held = contents_of(files, counters.next_seq[0])
        ours = (store.rows()["seq"].to_pylist(), held.first_seq, held.last_seq)
        theirs = [message.seq for message in self.nats.survivors("T")]
        assert ours == (theirs, state["first_seq"], state["last_seq"]), (kind, body)

    def _ours(self, kind: str, body: Json) -> int | str:
        try:
            if kind == "purge":
                request: Any = purge_request(body.get("filter"), body.get("seq"), body.get("keep"))
            else:
                request = delete_request([body["seq"]])
            with Engines("local") as engines:
                return remove_now(self.here, request, engines).removed_messages
        except RetentionError as error:
            (code,) = re.findall(r"error code (\d+)", str(error))
            return f"refused, {code}"

    def _theirs(self, kind: str, body: Json) -> int | str:
        subject = "STREAM.PURGE.T" if kind == "purge" else "STREAM.MSG.DELETE.T"
        try:
            answer = self.nats.request(subject, body)
        except ServerError as error:
            return f"refused, {error.code}"
        return answer["purged"] if kind == "purge" else 1


@pytest.fixture
def fresh(nats: Nats) -> Iterator[Nats]:
    yield nats
    nats.delete("T")


def log(text: str, first: int = 1) -> list[Laid]:
    return [Laid(first + at, f"T.{letter}", START + at) for at, letter in enumerate(text)]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("body", NINE, ids=str)
def test_a_purge_of_nine_messages_is_the_servers(
    fresh: Nats, tmp_path: Path, body: Json, storage: str
) -> None:
    nine = log("abcabcabc")
    pair = Pair(fresh, tmp_path, [File(1, nine[:4]), File(5, nine[4:])], storage=storage)
    pair.ask("purge", body)


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(
    "config", [{"deny_purge": True}, {"deny_delete": True}, {"sealed": True}], ids=str
)
def test_a_protected_stream_refuses_as_the_server_does(
    fresh: Nats, tmp_path: Path, config: Json, storage: str
) -> None:
    pair = Pair(fresh, tmp_path, [File(1, log("abc"))], storage=storage, **config)
    for body in ({"seq": 1, "keep": 1}, {"filter": "nope"}):
        pair.ask("purge", body)
    for seq in (1, 50):
        pair.ask("delete", {"seq": seq})


@pytest.mark.parametrize("seed", range(STREAMS))
def test_any_row_of_requests_leaves_what_the_server_leaves(
    fresh: Nats, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    count = dice.randrange(1, 30)
    seqs = sorted(dice.sample(range(1, 50), count))
    messages = [
        Laid(seq, "T." + dice.choice(("a", "b", "a.b", "b.b", "é")), START + seq) for seq in seqs
    ]
    cuts = sorted({0, count, *(dice.randrange(count) for _ in range(3))})
    files = [File(messages[start].seq, messages[start:end]) for start, end in pairwise(cuts)]
    pair = Pair(fresh, tmp_path, files, storage=dice.choice(("file", "memory")))
    for _ in range(REQUESTS):
        pair.ask(*_request(dice))


def _request(dice: random.Random) -> tuple[str, Json]:
    if dice.random() < 0.5:
        return "delete", {"seq": dice.randrange(0, 60)}
    body: Json = {}
    if dice.random() < 0.7:
        body["filter"] = dice.choice(("T.a", "T.*", "T.*.b", "T.b.>", ">", "T.é", "T.x", "*.b"))
    limit = dice.choice((None, "seq", "keep"))
    if limit is not None:
        body[limit] = dice.randrange(0, 30 if limit == "seq" else 6)
    return "purge", body or {"seq": dice.randrange(0, 60)}
