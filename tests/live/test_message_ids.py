"""The same publishes, retries and removals on a server without restarts and on a stream here."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from tests.support.laying import SECOND
from tests.support.nats_oracle import Json, Nats, server

pytestmark = pytest.mark.live

SEQUENCES = int(os.environ.get("RETENTION_LIVE_STREAMS", "4"))
STEPS, IDS = 24, 12
KINDS: dict[str, dict[str, Any]] = {
    "of each subject the last": {"max_msgs_per_subject": 1},
    "the last ones": {"max_msgs": 3},
    "of each subject the last two": {"max_msgs_per_subject": 2},
    "what somebody wants": {
        "retention": "interest",
        "unmatched": "remove",
        "consumers": [
            {"durable_name": "c", "filter_subject": "S.a", "ack_policy": "explicit"},
        ],
    },
}
OURS = ("unmatched", "consumers")


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as running:
        yield running


class Twins:
    """A stream on the server and the same here; its clock advances with each step."""

    def __init__(self, nats: Nats, folder: Path, format_: str, **limits: Any) -> None:
        self.nats, self.now_ns, self.counts = nats, 1_700_000_000 * SECOND, Counter[str]()
        config = {"name": "S", "subjects": ["S.>"], "allow_rollup_hdrs": True, "no_ack": False}
        theirs = {name: value for name, value in limits.items() if name not in OURS}
        nats.request("STREAM.CREATE.S", {**config, **theirs, "num_replicas": 1})
        for consumer in limits.get("consumers", ()):
            request = {"stream_name": "S", "config": consumer}
            nats.request(f"CONSUMER.DURABLE.CREATE.S.{consumer['durable_name']}", request)
        folder.mkdir()
        place = folder / "retention.yaml"
        streams = [{**config, **limits, "segment_size": "600"}]
        said = {"warehouse": ".", "defaults": {"format": format_}, "streams": streams}
        place.write_text(json.dumps(said), encoding="utf-8")
        self.warehouse: Warehouse = open_warehouse(place, engine="local", clock=lambda: self.now_ns)

    def publish(self, batch: list[tuple[str, dict[str, str]]]) -> None:
        """Publish a batch to both, and compare the answers."""
        lines = [
            json.dumps({"subject": subject, "data": "x", "headers": headers}).encode()
            for subject, headers in batch
        ]
        given = self.warehouse.new_stream("S").publish(lines)
        ours = [(ack.seq, ack.duplicate) for ack in given.acks()]
        acks = [self.nats.publish_one(subject, b"x", headers) for subject, headers in batch]
        assert ours == [(ack["seq"], ack.get("duplicate", False)) for ack in acks], batch
        self.counts["duplicates"] += sum(duplicate for _, duplicate in ours)

    def apply(self) -> None:
        """Apply the limits here (the server applies them at once), and compare the remaining messages."""
        self.warehouse.new_stream("S").opened.store.create()
        [outcome] = self.warehouse.apply()
        assert outcome.value is not None, outcome.sentence
        self.counts["removed"] += outcome.value.removed_messages
        assert self.stored() == [(one.seq, one.subject) for one in self.nats.survivors("S")]

    def stored(self) -> list[tuple[int, str]]:
        """Sequences and subjects of the remaining messages here."""
        tables = self.warehouse.stream("S").messages()
        return [
            (row["seq"], row["subject"])
            for table in tables
            for row in table.select(["seq", "subject"]).to_pylist()
        ]

    def undo(self) -> None:
        """Undo the last pass here; the next pass removes the messages again."""
        runs = [run for run in self.warehouse.history(["S"]) if run["status"] == "done"]
        if runs and runs[0]["kind"] == "apply" and runs[0]["removed_messages"]:
            self.warehouse.undo(runs[0]["run"])
            self.counts["undone"] += 1

    def remove(self, dice: random.Random) -> None:
        """Apply a purge or a delete to both."""
        stream = self.warehouse.stream("S")
        stored = self.stored()
        if stored and dice.random() < 0.5:
            seq, _ = dice.choice(stored)
            self.nats.request("STREAM.MSG.DELETE.S", {"seq": seq})
            stream.delete(seq).apply()
        else:
            how: Json = dice.choice(({"filter": "S.a"}, {"keep": 1}, {}))
            self.nats.request("STREAM.PURGE.S", how)
            stream.purge(how.get("filter"), keep=how.get("keep")).apply()
        self.counts["asked"] += 1


def a_batch(dice: random.Random) -> list[tuple[str, dict[str, str]]]:
    return [
        (
            f"S.{dice.choice('aab')}",
            ({"Nats-Msg-Id": f"id{dice.randrange(IDS)}"} if dice.random() < 0.8 else {})
            | ({"Nats-Rollup": dice.choice(("sub", "sub", "all"))} if dice.random() < 0.1 else {}),
        )
        for _ in range(dice.choice((1, 1, 1, 2, 4)))
    ]


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_a_retry_is_answered_as_the_server_answers_it(
    nats: Nats, tmp_path: Path, number: int
) -> None:
    dice = random.Random(number)
    kinds = list(KINDS)
    kind, format_ = kinds[number % len(kinds)], ("delta", "parquet")[(number + number // 4) % 2]
    twins = Twins(nats, tmp_path / "here", format_, **KINDS[kind])
    try:
        for _ in range(STEPS):
            twins.now_ns += SECOND // 1000
            batch, step = a_batch(dice), dice.random()
            if "max_msgs" in KINDS[kind]:
                # Messages due by that limit still exist here at a later rollup.
                batch = [batch[0], *(one for one in batch[1:] if "Nats-Rollup" not in one[1])]
            if any("Nats-Rollup" in headers for _, headers in batch) or step < 0.2:
                # A server has applied its limits by the time of a removal.
                twins.apply()
            twins.publish(batch)
            if step < 0.1:
                twins.undo()
            elif step < 0.2:
                twins.apply()
                twins.remove(dice)
    finally:
        nats.delete("S")
    assert twins.counts["duplicates"] > 5
    assert twins.counts["removed"] + twins.counts["asked"] > 0


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_an_id_is_forgotten_when_its_window_is_over(
    nats: Nats, tmp_path: Path, format_: str
) -> None:
    limits = {"max_msgs_per_subject": 1, "duplicate_window": SECOND}
    twins = Twins(nats, tmp_path / "here", format_, **limits)
    try:
        first = ("S.a", {"Nats-Msg-Id": "1"})
        twins.publish([first])
        twins.publish([("S.a", {"Nats-Msg-Id": "2"})])
        twins.apply()
        twins.now_ns += SECOND - 1
        twins.publish([first])
        twins.now_ns += 1
        time.sleep(1.3)
        twins.publish([first])
        twins.apply()
    finally:
        nats.delete("S")
