"""A topic is a log without stream-only features, and its refusals use the words of the request."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from retention.api.stream import Stream
from retention.api.topic import Topic
from retention.errors import RetentionError
from tests.support.topics import NAME, World, line


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, "parquet")
    world.topic.publish([line("a", partition=0), line("b", partition=1)])
    return world


def test_the_name_of_a_topic_gives_the_topic(world: World) -> None:
    for log in (world.warehouse.log(NAME), world.warehouse.stream(NAME)):
        assert type(log) is Topic
        assert log.plan().plan.is_empty
        assert log.state().messages == 2
    published: object = world.warehouse.new_stream(NAME).publish([line("c", partition=0)])
    assert "partition 0: 1 to 1" in published.summary()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda stream: stream.consumers, "which has readers with stored offsets"),
        (lambda stream: stream.consumer("worker"), "which has readers with stored offsets"),
        (lambda stream: stream.delete(1), "only whole segments are removed"),
        (lambda stream: stream.purge("orders.>"), "a purge removes everything"),
        (lambda stream: stream.latest(), "which has messages without subjects"),
        (lambda stream: stream.import_nats_backup("b.tar"), "accepts no messages from streams"),
        (
            lambda stream: stream.export_nats_backup("b.tar"),
            "only streams can be exported as a NATS backup",
        ),
    ],
)
def test_a_topic_refuses_what_only_streams_have(
    world: World, ask: Callable[[Stream], object], why: str
) -> None:
    with pytest.raises(RetentionError, match=f"{NAME}: is a topic, .*{why}.*; nothing was changed"):
        ask(world.warehouse.stream(NAME))


def test_a_topic_has_no_other_attributes(world: World) -> None:
    with pytest.raises(AttributeError, match="a topic has no attribute 'colour'"):
        world.topic.colour  # type: ignore[attr-defined]  # noqa: B018


def test_a_topic_can_be_copied(world: World) -> None:
    topic = world.topic
    assert copy.copy(topic) == topic
