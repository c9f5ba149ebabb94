"""Every public method with arguments of every wrong kind: always one sentence, and no other error."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import retention
from retention.api.bucket import Bucket
from retention.api.log import BoundPlan
from retention.api.stream import Stream
from retention.api.stream_consumers import StreamConsumers
from retention.api.topic import Topic
from retention.api.warehouse import Warehouse
from retention.delivery.consumer import BatchConsumer
from retention.delivery.messages import Message, Messages
from retention.errors import RetentionError, UsageError
from tests.support.sandboxes import NOW, ORDERS, configured, lines, opened

VALUES: dict[str, Any] = {
    "None": None,
    "a number": 5,
    "a negative number": -1,
    "a huge number": 2**70,
    "a fraction": 1.5,
    "a truth": True,
    "a text": "nope",
    "an empty text": "",
    "a text that is none": "\ud800",
    "a null character": "a\0b",
    "bytes": b"x",
    "a list": [1, 2],
    "a dict": {"nope": 1},
    "a dict of numbers": {1: 2},
    "a missing path": Path("/nowhere/at/all"),
    "an object": object(),
    "an array": np.array([1.5, 2.5]),
}
GOOD: dict[str, Any] = {
    "name": "NOPE",
    "names": ["ORDERS"],
    "seq": 1,
    "config": {"durable_name": "new"},
    "run": "20270115T080000.000000000Z-000000",
    "path": "/nowhere/at/all",
    "target": "/nowhere/at/all",
    "directory": "/nowhere/at/all",
    "plans": [],
    "reason": "x",
    "hold_id": "20270115T080000Z-000000",
    "heads": [],
    "lines": [],
    "frame": [],
    "writer": "w",
    "batch": 1,
    "partition": 0,
    "count": 1,
    "kind": "consumer",
    "offset": 0,
    "spark": None,
    "bucket": "B",
    "key": "a",
    "value": "x",
    "values": {"a": "x"},
    "revision": 1,
    "messages": [1],
}
"""Arguments in addition to the wrong one; the rest have defaults."""
OWNERS = (
    *(Warehouse, Stream, Topic, StreamConsumers, BoundPlan),
    *(BatchConsumer, Messages, Message, Bucket),
)


def methods(owner: type) -> Iterator[tuple[str, str]]:
    """The methods of a class with each of their parameters."""
    for name, method in inspect.getmembers(owner, inspect.isfunction):
        if not name.startswith("_"):
            for parameter in list(inspect.signature(method).parameters.values())[1:]:
                if parameter.kind is not parameter.VAR_KEYWORD:
                    yield name, parameter.name


CASES = [(owner, *case) for owner in OWNERS for case in methods(owner)]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[type, Any]:
    """A stream and a topic with a few messages, and their dependent objects."""
    folder = tmp_path_factory.mktemp("arguments")

    file = configured(folder, ORDERS)
    content = json.loads(file.read_text())
    content["topics"] = [{"name": "clicks", "partitions": 1}]
    file.write_text(json.dumps(content))
    warehouse = retention.open_warehouse(file, clock=lambda: NOW, engine="local")
    stream = warehouse.stream("ORDERS")
    stream.publish(lines(3))
    topic = warehouse.topic("clicks")
    topic.publish([{"data": "x"}])
    stream.consumers.add({"durable_name": "worker"})
    given = stream.consumer("worker").fetch()
    return {
        Warehouse: warehouse,
        Stream: stream,
        Topic: topic,
        StreamConsumers: stream.consumers,
        BoundPlan: stream.plan(),
        Bucket: warehouse.kv("B"),
        BatchConsumer: stream.consumer("worker"),
        Messages: given,
        Message: next(iter(given)),
    }


def call(target: Any, method: str, parameter: str, value: Any) -> None:
    """Call a method with one argument, and its other required arguments."""
    function = getattr(target, method)
    given: list[Any] = []
    named: dict[str, Any] = {}
    for name, known in inspect.signature(function).parameters.items():
        if known.kind is inspect.Parameter.VAR_POSITIONAL:
            given = [value] if name == parameter else [1]
        elif name == parameter:
            named[name] = value
        elif known.default is known.empty and known.kind is not known.VAR_KEYWORD:
            named[name] = GOOD[name]
    done = function(*given, **named)
    if isinstance(done, Iterator):
        list(done)


@pytest.mark.parametrize(
    ("owner", "method", "parameter"), CASES, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_wrong_argument_is_a_sentence(
    objects: dict[type, Any],
    owner: type,
    method: str,
    parameter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in VALUES.items():
        try:
            call(objects[owner], method, parameter, value)
        except RetentionError as error:
            assert str(error), name  # noqa: PT017
            assert "unexpected" not in str(error), name  # noqa: PT017
        except Exception as error:
            raise AssertionError(f"{owner.__name__}.{method}({parameter}={name})") from error


@pytest.mark.parametrize("value", VALUES)
def test_a_warehouse_is_opened_or_refused_in_a_sentence(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, engine in ((VALUES[value], None), (tmp_path, VALUES[value])):
        try:
            retention.open_warehouse(path, engine=engine)
        except RetentionError as error:
            assert str(error)  # noqa: PT017


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a name": (lambda wh: wh.stream(None), "stream: name is None, and must be a text; nothing was"),
    "a sequence": (
        lambda wh: wh.stream("ORDERS").explain("1"),
        "explain: seq is '1' of type str, and must be a whole number",
    ),
    "a truth": (lambda wh: wh.stream("ORDERS").explain(True), "True of type bool, and must be a"),  # noqa: FBT003
    "a filter": (lambda wh: wh.stream("ORDERS").purge(5), "purge: subject is 5 of type int"),
    "an engine": (
        lambda wh: retention.open_warehouse(wh.location, engine="java"),  # type: ignore[arg-type]
        "engine is 'java' of type str, and must be 'auto', 'spark' or 'local'",
    ),
    "an instant": (
        lambda wh: wh.plan(as_of=[1]),
        r"plan: as_of is \[1\] of type list, and must be an instant|is not an instant",
    ),
    "a selection": (
        lambda wh: wh.stream("ORDERS").messages("orders.>"),
        "wanted is 'orders.>' of type str, and must be a Selection",
    ),
    "a missing argument": (
        lambda wh: wh.stream(),
        r"stream: missing a required argument: 'name'; nothing was done; it is called as stream\(name: str\)",
    ),
    "a parameter that is none": (
        lambda wh: wh.stream("ORDERS").plan(when=5),
        r"plan: got an unexpected keyword argument 'when'; .* plan\(as_of: Instant = None\)",
    ),
    "a list of names with a hole": (lambda wh: wh.plan(["ORDERS", None]), "must be names"),
}


ANSWERS_REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a number of messages": (
        lambda worker: worker.fetch("many"),
        "fetch: n is 'many' of type str, and must be a whole number; nothing was done",
    ),
    "messages": (lambda worker: worker.ack("1"), "must be messages, or their sequences"),
    "a sequence": (lambda worker: worker.nak([1.5]), "must be messages, or their sequences"),
    "a delay": (lambda worker: worker.fetch().nak(1.5), "a text or a whole number"),
    "a reason": (lambda worker: next(iter(worker.fetch())).term(5), "term: reason is 5 of type"),
    "a session": (lambda worker: worker.read("local"), "must be a SparkSession"),
    "a mask that is too short": (
        lambda worker: worker.fetch().filter([True]),
        "has to be True or False for each of the 3 messages",
    ),
    "a mask of numbers": (lambda worker: worker.fetch().filter([1, 0, 1]), "True or False"),
}


@pytest.mark.parametrize("case", ANSWERS_REFUSED)
def test_a_worker_is_told_what_is_wrong_with_an_answer(tmp_path: Path, case: str) -> None:
    act, sentence = ANSWERS_REFUSED[case]
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(3))
    stream.consumers.add({"durable_name": "worker"})
    with pytest.raises(UsageError, match=sentence):
        act(stream.consumer("worker"))


def test_messages_are_answered_by_whatever_names_them(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(6))
    stream.consumers.add({"durable_name": "worker"})
    worker = stream.consumer("worker")
    given = worker.fetch()
    few = given.filter(np.array([True, False, False, False, False, False]))
    one = next(iter(given.filter([False, True, False, False, False, False])))
    for named in (few, one, [3, 4], np.array([5, 6])):
        worker.ack(named)
    assert worker.state.ack_floor.stream_seq == 6


@pytest.mark.parametrize("case", REFUSED)
def test_the_sentence_says_what_is_wrong_and_what_is_taken(tmp_path: Path, case: str) -> None:
    act, sentence = REFUSED[case]
    with pytest.raises(UsageError, match=sentence):
        act(opened(tmp_path, ORDERS))


def test_sequences_come_one_by_one_or_together(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(9))
    for seqs in ((1, 2), ([1, 2],), (range(1, 3),), (np.array([2, 1]),), (1, [2])):
        assert stream.delete(*seqs).plan.removed_messages == 2


def test_a_single_name_is_that_stream(tmp_path: Path) -> None:
    [outcome] = opened(tmp_path, ORDERS).plan("ORDERS")
    assert (outcome.stream, outcome.error) == ("ORDERS", None)


def test_methods_keep_their_names_and_signatures() -> None:
    assert str(inspect.signature(Stream.explain)).startswith("(self, seq: ")
    assert (Stream.publish.__doc__ or "").startswith("Publish messages")
