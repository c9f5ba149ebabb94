"""Agreement of a real server and our configuration: accepted configurations, normal forms, and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from retention.config import load_config, parse_stream
from retention.config.server_json import server_config
from retention.errors import ConfigError
from tests.support.laying import START, even_segments, lay, warehouse_with
from tests.support.nats_oracle import Nats, ServerError, server

pytestmark = pytest.mark.live

Json = dict[str, Any]
Answer = tuple[Json, int | None]

SECOND = 1_000_000_000
B = {"name": "B"}
"""An origin unknown to the server."""

CASES: list[Json] = [
    {},
    {"subjects": []},
    {"max_msgs": 0, "max_bytes": -5, "max_msgs_per_subject": -2, "max_msg_size": 0},
    {"max_consumers": 0, "num_replicas": 0},
    {"max_msgs": 7, "max_bytes": 1024, "max_msgs_per_subject": 3, "max_msg_size": 100},
    {"max_age": -1},
    {"max_age": SECOND // 10},
    {"max_age": SECOND // 10 - 1},
    {"max_age": 60 * SECOND},
    {"max_age": 60 * SECOND, "duplicate_window": 61 * SECOND},
    {"max_age": 60 * SECOND, "duplicate_window": 60 * SECOND},
    {"duplicate_window": SECOND // 10 - 1},
    {"duplicate_window": -1},
    {"duplicate_window": 3600 * SECOND},
    {"discard": "new", "max_msgs": 5},
    {"discard_new_per_subject": True},
    {"discard_new_per_subject": True, "discard": "new"},
    {"discard_new_per_subject": True, "max_msgs_per_subject": 1},
    {"discard_new_per_subject": True, "discard": "new", "max_msgs_per_subject": 1},
    {"subject_delete_marker_ttl": SECOND},
    {"subject_delete_marker_ttl": SECOND - 1},
    {"subject_delete_marker_ttl": -1},
    {"subject_delete_marker_ttl": SECOND, "deny_purge": True},
    {"subject_delete_marker_ttl": SECOND, "allow_msg_counter": True},
    {"subject_delete_marker_ttl": SECOND, "mirror": B},
    {"subject_delete_marker_ttl": SECOND, "sources": [B]},
    {"subject_delete_marker_ttl": SECOND * 3 // 2},
    {"subject_delete_marker_ttl": SECOND, "allow_rollup_hdrs": True, "deny_purge": True},
    {"subject_delete_marker_ttl": SECOND, "deny_delete": True, "max_age": SECOND // 2},
    {"subject_delete_marker_ttl": -SECOND, "mirror": B},
    {"subject_delete_marker_ttl": SECOND, "sources": [B], "deny_purge": True},
    {"subject_delete_marker_ttl": SECOND, "retention": "interest", "storage": "memory"},
    {"subject_delete_marker_ttl": SECOND, "discard": "new", "max_msgs": 1, "max_msg_size": 10},
    {"allow_msg_ttl": True, "mirror": B},
    {"allow_rollup_hdrs": True, "mirror": B},
    {"allow_msg_ttl": True, "sealed": True},
    {"allow_rollup_hdrs": True, "deny_purge": True},
    {"allow_msg_ttl": True},
    {"allow_msg_ttl": True, "allow_msg_counter": True},
    {"allow_msg_counter": True, "discard": "new"},
    {"allow_msg_counter": True, "retention": "interest"},
    {"allow_msg_schedules": True},
    {"allow_msg_schedules": True, "discard": "new"},
    {"allow_msg_schedules": True, "allow_msg_counter": True},
    {"allow_msg_schedules": True, "sources": [B]},
    {"persist_mode": "async"},
    {"persist_mode": "async", "storage": "memory"},
    {"persist_mode": "async", "allow_atomic": True},
    {"retention": "workqueue", "compression": "s2", "storage": "memory"},
    {"sealed": True},
    {"sealed": True, "max_age": 60 * SECOND, "allow_rollup_hdrs": True, "discard": "old"},
    {"sealed": True, "subject_delete_marker_ttl": 2 * SECOND},
    {"sealed": True, "subject_delete_marker_ttl": 2 * SECOND, "allow_msg_counter": True},
    {"sealed": True, "allow_msg_counter": True},
    {"num_replicas": 6},
    {"num_replicas": -1},
    {"first_seq": 10},
    {"subjects": ["a", "a"]},
    {"subjects": ["a.*", "*.b"]},
    {"subjects": ["a.*", "a.b.>"]},
    {"subjects": ["a..b"]},
    {"subjects": ["a b"]},
    {"subjects": ["a.>.b"]},
    {"subjects": ["a.b*", "a.>>"]},
    {"subjects": [">"]},
    {"subjects": [">"], "no_ack": True},
    {"subjects": ["*.a"]},
    {"subjects": ["*.a"], "no_ack": True},
    {"subjects": ["$JS.API.x"]},
    {"subjects": ["$JS.EVENT.>"]},
    {"subjects": ["$SYS.ACCOUNT.x"]},
    {"subjects": ["$SYS.>"]},
    {"subjects": ["$KV.B.>"], "discard": "new", "allow_rollup_hdrs": True, "deny_delete": True},
    {"name": "é"},
    {"name": "a:b"},
    {"name": "a/b"},
    {"name": "x" * 256},
    {"description": "x" * 4097},
    {"metadata": {"k": "x" * 131_072}},
    {"mirror": B},
    {"mirror": B, "duplicate_window": SECOND},
    {"mirror": B, "subjects": ["a"]},
    {"mirror": B, "sources": [B]},
    {"mirror": B, "first_seq": 5},
    {"mirror": B, "allow_msg_counter": True},
    {"mirror": B, "allow_atomic": True},
    {"mirror": B, "allow_batched": True},
    {"mirror": B, "allow_msg_schedules": True},
    {"mirror": {"name": "b.c"}},
    {"mirror": B | {"filter_subject": "a", "subject_transforms": [{"src": "b", "dest": "c"}]}},
    {"mirror": B | {"subject_transforms": [{"src": "b..", "dest": "c"}]}},
    {"mirror": B | {"subject_transforms": [{"src": "b", "dest": "c.*"}]}},
    {"mirror": B | {"subject_transforms": [{"src": "b.*"}, {"src": "b.c"}]}},
    {"mirror": B | {"external": {"api": "$JS.API", "deliver": ""}}},
    {"mirror": B | {"external": {"api": "$JS.hub.API", "deliver": "x.*"}}},
    {"sources": [B]},
    {"sources": [B], "subjects": ["own"], "duplicate_window": SECOND},
    {"sources": [B, B]},
    {"sources": [B, B | {"filter_subject": "a"}]},
    {"sources": [{"name": ""}]},
    {"sources": [B | {"filter_subject": "a..b"}]},
    {"mirror": B | {"filter_subject": "a..b"}},
    {"sources": [B | {"consumer": {"name": "c", "deliver_subject": "d.*"}}]},
    {"sources": [B | {"filter_subject": "a", "subject_transforms": [{"src": "b", "dest": "c"}]}]},
    {"sources": [B | {"subject_transforms": [{"src": "b.*", "dest": "c.$2"}]}]},
    {"sources": [B | {"subject_transforms": [{"src": "b.>"}, {"src": "b.c"}]}]},
    {"subject_transform": {"src": "a.*", "dest": "b.$1"}},
    {"subject_transform": {"src": "a.*", "dest": "b.{{wildcard(2)}}"}},
    {"subject_transform": {"src": "a.>", "dest": "b"}},
    {"subject_transform": {"src": "a.*", "dest": "b.{{partition(3,1)}}"}},
    {"subject_transform": {"src": "a.*", "dest": "b.{{nothing(1)}}"}},
    {"subject_transform": {"src": ".", "dest": "b"}},
    {"subject_transform": {"src": "a.*", "dest": "{{split(1,-)}}.{{slicefromleft(1,2)}}"}},
    {"subject_transform": {"src": "a.*", "dest": "{{left(1,2)}}"}},
    {"subject_transform": {"src": "a.*", "dest": "{{wildcard()}}"}},
    {"subject_transform": {"src": "a.*", "dest": "{{wildcard(1,2)}}"}},
    {"subject_transform": {"src": "a.*", "dest": "b c"}},
    {"subject_transform": {"src": "a", "dest": "b.{{random(3)}}.{{partition(2)}}"}},
    {"subject_transform": {"src": "a", "dest": "b.$1"}},
    {"republish": {"src": "a.*", "dest": "{{left(1,2)}}"}},
    {"republish": {"src": "a.*", "dest": "{{partition(a)}}"}},
    {"republish": {"src": ">", "dest": "copy.>"}},
    {"republish": {"src": "a.*", "dest": "copy.{{wildcard(1)}}"}},
    {"republish": {"src": ">", "dest": "orders.>"}, "subjects": ["orders.>"]},
    {"republish": {"src": "a", "dest": "copy.>"}},
    {"placement": {"preferred": "n1"}},
    {"consumer_limits": {"inactive_threshold": SECOND, "max_ack_pending": 5}},
]  # fmt: skip

COMPARED = (
    "subjects", "retention", "max_age", "max_msgs", "max_bytes", "max_msgs_per_subject",
    "max_msg_size", "max_consumers", "discard", "discard_new_per_subject", "storage",
    "num_replicas", "no_ack", "duplicate_window", "first_seq", "sealed", "deny_delete",
    "deny_purge", "allow_rollup_hdrs", "allow_msg_ttl", "subject_delete_marker_ttl",
    "compression",
)  # fmt: skip


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    """The server's configuration for each case, or its error code."""
    with server() as nats:
        return [answer(nats, {"name": "S"} | case) for case in CASES]


def answer(nats: Nats, config: Json) -> Answer:
    name = config["name"]
    try:
        info = nats.request(f"STREAM.CREATE.{name}", config | {"sealed": False})
    except ServerError as error:
        return {}, error.code
    try:
        if "sealed" in config:
            info = nats.request(f"STREAM.UPDATE.{name}", config)
    except ServerError as error:
        return {}, error.code
    finally:
        nats.delete(name)
    return info["config"], None


def ours(case: Json) -> tuple[Json, set[int]]:
    """Our normal form of a case, or the error codes of our refusals."""
    try:
        stream = parse_stream({"name": "S"} | case, "case")
    except ConfigError as error:
        return {}, {int(code) for code in re.findall(r"server error (\d+)", str(error))}
    return stream.model_dump(mode="json"), set()


@pytest.mark.parametrize("at", range(len(CASES)), ids=[json.dumps(case)[:70] for case in CASES])
def test_the_server_and_we_say_the_same_of_a_stream(at: int, answers: list[Answer]) -> None:
    accepted, code = answers[at]
    normal, codes = ours(CASES[at])
    if code is not None:
        assert code in codes
        return
    assert not codes
    told = {key: accepted.get(key, type(normal[key])()) for key in COMPARED}
    assert {key: normal[key] for key in COMPARED} == told


def test_what_we_tell_a_server_of_a_stream_is_what_it_says_itself(answers: list[Answer]) -> None:
    """Also if a server refuses its own result: markers enable TTLs, which exclude counters."""
    accepted = [(case, made) for case, (made, _) in zip(CASES, answers, strict=True) if made]
    with server() as nats:
        for case, made in accepted:
            told = server_config(parse_stream({"name": "S"} | case, "case"))
            assert answer(nats, told) == answer(nats, made), case


TOLD_ALIKE: list[Json] = [
    {"subject_delete_marker_ttl": -1},
    {"subject_delete_marker_ttl": SECOND - 1},
    {"subject_delete_marker_ttl": SECOND, "mirror": B},
    {"allow_rollup_hdrs": True, "deny_purge": True},
    {"allow_msg_ttl": True, "allow_msg_counter": True},
]


def test_why_a_stream_cannot_have_markers_or_roll_ups_is_told_in_the_servers_words() -> None:
    with server() as nats:
        for case in TOLD_ALIKE:
            with pytest.raises(ServerError) as theirs:
                nats.request("STREAM.CREATE.S", {"name": "S", **case})
            with pytest.raises(ConfigError, match=str(theirs.value.reason)):
                parse_stream({"name": "S", **case}, "case")


def told_of_an_update(nats: Nats, before: Json, after: Json) -> str:
    """The server's reason to refuse an update; empty if it is accepted."""
    nats.request("STREAM.CREATE.S", {"name": "S", **before})
    try:
        nats.request("STREAM.UPDATE.S", {"name": "S", **after})
    except ServerError as error:
        return error.reason
    finally:
        nats.delete("S")
    return ""


def test_ttls_are_never_switched_off(tmp_path: Path) -> None:
    """Markers enable them, and removing markers does not disable them."""
    changes: list[tuple[Json, Json]] = [
        ({"allow_msg_ttl": True}, {}),
        ({"subject_delete_marker_ttl": SECOND}, {}),
        ({"subject_delete_marker_ttl": SECOND}, {"allow_msg_ttl": True}),
    ]
    with server() as nats:
        told = [told_of_an_update(nats, before, after) for before, after in changes]
    assert told[0]
    for number, ((before, after), reason) in enumerate(zip(changes, told, strict=True)):
        warehouse = warehouse_with(tmp_path / str(number), "parquet", START, **before)
        lay(warehouse.stream("ORDERS").opened, even_segments(1, 1))
        warehouse.apply()
        [ours] = warehouse_with(tmp_path / str(number), "parquet", START, **after).apply()
        assert (ours.value is None) == bool(reason)
        assert reason in ours.sentence


def test_subjects_that_another_stream_has_are_refused_by_both(tmp_path: Path) -> None:
    streams = [{"name": "TAKEN", "subjects": ["taken.>"]}, {"name": "S", "subjects": ["taken.x"]}]
    path = tmp_path / "retention.yaml"
    path.write_text(json.dumps({"streams": streams}))
    with pytest.raises(ConfigError, match="10065"):
        load_config(path)
    with server() as nats:
        nats.request("STREAM.CREATE.TAKEN", streams[0])
        with pytest.raises(ServerError) as error:
            nats.request("STREAM.CREATE.S", streams[1])
    assert error.value.code == 10065


def source(name: str, **fields: Any) -> Json:
    return {"name": name} | fields


def stream(name: str, *sources: Json, **fields: Any) -> Json:
    return {"name": name, "subjects": [f"{name.lower()}.>"], "sources": list(sources)} | fields


FILTERED = source("A", filter_subject="elsewhere")
HUB = {"external": {"api": "$JS.hub.API", "deliver": ""}}
CIRCLES: list[list[Json]] = [
    [stream("A", source("A"))],
    [stream("A", FILTERED)],
    [stream("A", source("A", filter_subject="a.x"))],
    [stream("A", source("A", subject_transforms=[{"src": "elsewhere", "dest": "r"}]))],
    [stream("A", source("A", **HUB))],
    [stream("A", source("B")), stream("B", source("A"))],
    [stream("A", source("B")), stream("B", FILTERED)],
    [stream("B", FILTERED), stream("A", source("B"))],
    [stream("A", source("B", filter_subject="a.x")), stream("B", source("A"))],
    [stream("A", source("B", filter_subject="b.x")), stream("B", source("A"))],
    [stream("A", source("B", **HUB)), stream("B", source("A"))],
    [stream("A", source("B")), stream("B", source("C")), stream("C", source("A"))],
    [stream("A", source("B")), stream("B", source("C")), stream("C", FILTERED)],
    [stream("A", source("B")), stream("B", source("C", filter_subject="x")), stream("C", FILTERED)],
    [stream("A", source("B")), stream("B"), stream("C", source("A"), source("B"))],
    [stream("A", source("A", filter_subject="x")), stream("D", source("A"))],
    [{"name": "M", "mirror": source("M")}],
    [{"name": "M", "mirror": source("A")}, stream("A", source("M"))],
    [stream("A", source("M", filter_subject="x")), {"name": "M", "mirror": source("A")}],
]  # fmt: skip


@pytest.fixture(scope="module")
def circles() -> list[bool]:
    """Whether the server creates all streams of each case, in order."""
    with server() as nats:
        return [_all_created(nats, case) for case in CIRCLES]


def _all_created(nats: Nats, case: list[Json]) -> bool:
    created, refused = [], ""
    for config in case:
        try:
            nats.request(f"STREAM.CREATE.{config['name']}", config)
            created.append(config["name"])
        except ServerError as error:
            refused = str(error)
    for name in created:
        nats.delete(name)
    assert not refused or ("10052" in refused and "cycle" in refused)
    return not refused


@pytest.mark.parametrize("at", range(len(CIRCLES)), ids=[json.dumps(c)[:90] for c in CIRCLES])
def test_messages_in_circles_are_refused_by_both(
    at: int, circles: list[bool], tmp_path: Path
) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text(json.dumps({"streams": CIRCLES[at]}))
    if circles[at]:
        assert len(load_config(path).streams) == len(CIRCLES[at])
        return
    with pytest.raises(ConfigError, match=r"return through .*10052"):
        load_config(path)
