from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.errors import RetentionError
from tests.support.sandboxes import NOW, Commands, commands, opened

SMALL = {"name": "ORDERS", "subjects": ["orders.>"], "max_msg_size": 60}
LINES = [
    '{"subject": "orders.a", "data": "1"}',
    "no JSON",
    '{"subject": "elsewhere", "data": "2"}',
    '{"subject": "orders.a", "data": "' + "x" * 61 + '"}',
    '{"subject": "orders.b", "data": "3", "headers": {"Nats-Expected-Last-Sequence": "1"}}',
    '{"subject": "orders.b", "data": "4", "headers": {"Nats-Expected-Last-Sequence": "1"}}',
]


STRICT = SMALL | {
    "discard": "new",
    "max_msgs": 12,
    "max_msgs_per_subject": 4,
    "discard_new_per_subject": True,
    "allow_rollup_hdrs": True,
    "duplicate_window": "1h",
}


@pytest.fixture
def one(tmp_path: Path) -> Commands:
    return commands(tmp_path, SMALL)


def rejected(folder: Path) -> list[tuple[int, int | None, str]]:
    entries = map(json.loads, (folder / "rejects.jsonl").read_text(encoding="utf-8").splitlines())
    return [(entry["line"], entry["error"]["code"], entry["text"]) for entry in entries]


def test_refused_lines_are_left_out_with_the_reason_and_the_others_published(
    one: Commands,
) -> None:
    options = ("--rejects", one.folder / "rejects.jsonl")
    done = one.run("publish", "ORDERS", *options, "--format", "jsonl", stdin="\n".join(LINES))
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [1, 2]
    assert "4 of 6 lines refused and left out" in done.stderr
    assert rejected(one.folder) == [
        (2, None, LINES[1]),
        (3, None, LINES[2]),
        (4, 10054, LINES[3]),
        (6, 10071, LINES[5]),
    ]


def test_a_batch_without_refusals_leaves_an_empty_file(one: Commands) -> None:
    (one.folder / "rejects.jsonl").write_text(
        '{"line": 1, "error": {}, "text": "of an earlier batch"}\n', encoding="utf-8"
    )
    done = one.run("publish", "ORDERS", "--rejects", one.folder / "rejects.jsonl", stdin=LINES[0])
    assert done.exit_code == 0, done.output
    assert rejected(one.folder) == []


def test_nothing_is_published_where_rejects_cannot_be_written(one: Commands) -> None:
    done = one.run("publish", "ORDERS", "--rejects", one.folder, stdin="\n".join(LINES))
    assert done.exit_code == 2, done.output
    assert one.json("state")[0]["messages"] == 0


def test_a_topic_leaves_refused_lines_out_too(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text(
        json.dumps({"warehouse": ".", "topics": [{"name": "clicks", "partitions": 1}]}),
        encoding="utf-8",
    )
    there = Commands(tmp_path)
    lines = ['{"data": "1"}', '{"data": ""}', '{"data": "2", "partition": 7}', '{"data": "3"}']
    options = ("--rejects", tmp_path / "rejects.jsonl")
    done = there.run("publish", "clicks", *options, stdin="\n".join(lines))
    assert done.exit_code == 0, done.output
    assert rejected(tmp_path) == [(2, 4025, lines[1]), (3, 3007, lines[2])]
    assert there.json("state")[0]["messages"] == 2


def message(random: Random, number: int) -> dict[str, Any]:
    """A message; every third one is refused, by one of the checks."""
    heads = {
        "Nats-Msg-Id": str(random.randrange(8)),
        "Nats-Expected-Last-Sequence": str(random.randrange(1, 6)),
        "Nats-Expected-Last-Subject-Sequence": str(random.randrange(4)),
        "Nats-Rollup": random.choice(["sub", "all", "neither"]),
    }
    given = {name: value for name, value in heads.items() if random.random() < 0.15}
    subject = random.choice(["orders.a", "orders.b", "orders.c", "orders.c", "elsewhere"])
    data = "x" * random.choice([1, 1, 1, 90])
    return {"subject": subject, "data": data, "ts_ns": NOW + number, "headers": given}


@pytest.mark.parametrize("seed", range(2))
def test_the_others_are_answered_as_if_refused_ones_had_never_been_sent(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    messages = [message(random, number) for number in range(24)]
    alone, together = (
        opened(tmp_path / name, STRICT).stream("ORDERS") for name in ("alone", "together")
    )
    acks, refused = [], []
    for number, given in enumerate(messages, start=1):
        try:
            acks += [ack.as_json() for ack in alone.publish([given]).acks()]
        except RetentionError:
            refused.append(number)
    left_out: list[int] = []
    published = together.publish(
        messages, leave_out=lambda lines: left_out.extend(line.line for line in lines)
    )
    assert [ack.as_json() for ack in published.acks()] == acks
    assert left_out == refused
    assert refused
    assert stored(together) == stored(alone)


def stored(stream: Stream) -> list[dict[str, Any]]:
    columns = ["seq", "subject", "payload"]
    return [row for table in stream.messages() for row in table.select(columns).to_pylist()]
