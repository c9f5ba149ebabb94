from __future__ import annotations

from pathlib import Path

import pytest

from retention.config import Config, parse_stream
from retention.config.selection import is_pattern, select_streams
from retention.errors import UsageError
from tests.support.topics import World

STREAMS = {
    "ORDERS_EU": ["pii", "eu"],
    "ORDERS_US": ["pii"],
    "CLICKS": ["eu"],
    "LOGS": [],
    "a[1]": [],
}
LISTED = Config(
    "/w",
    tuple(
        parse_stream({"name": name, "subjects": [f"{number}.>"], "tags": tags}, "test")
        for number, (name, tags) in enumerate(STREAMS.items())
    ),
)
KNOWN = [*STREAMS, "UNLISTED", "*"]


def select(*names: str, tags: tuple[str, ...] = (), among: list[str] | None = None) -> list[str]:
    return select_streams(LISTED, lambda: KNOWN, names, tags, KNOWN if among is None else among)


@pytest.mark.parametrize(
    ("names", "tags", "selected"),
    [
        ((), (), KNOWN),
        (("LOGS", "LOGS"), (), ["LOGS"]),
        (("NONE",), (), ["NONE"]),
        (("ORDERS_*",), (), ["ORDERS_EU", "ORDERS_US"]),
        (("LOGS", "ORDERS_?S", "O*"), (), ["LOGS", "ORDERS_US", "ORDERS_EU"]),
        (("[CL]*",), (), ["CLICKS", "LOGS"]),
        (("*",), (), ["*"]),
        (("a[1]",), (), ["a[1]"]),
        ((), ("eu",), ["ORDERS_EU", "CLICKS"]),
        ((), ("eu", "pii"), ["ORDERS_EU", "ORDERS_US", "CLICKS"]),
        (("ORDERS_*",), ("eu",), ["ORDERS_EU"]),
        (("NONE", "ORDERS_*"), ("eu",), ["NONE", "ORDERS_EU"]),
        (("U*",), (), ["UNLISTED"]),
    ],
)
def test_names_patterns_and_tags_select(
    names: tuple[str, ...], tags: tuple[str, ...], selected: list[str]
) -> None:
    assert select(*names, tags=tags) == selected


def test_patterns_tags_and_nothing_mean_those_that_a_command_takes_and_a_name_itself() -> None:
    among = ["ORDERS_EU", "LOGS"]
    assert select(among=among) == among
    assert select("*S", "CLICKS", among=among) == ["LOGS", "CLICKS"]
    assert select(tags=("pii",), among=among) == ["ORDERS_EU"]
    assert select(among=[]) == []


@pytest.mark.parametrize(
    ("names", "tags", "sentence"),
    [
        (("ORDER-*",), (), "ORDER-*: this pattern matches none of 7 streams: ORDERS_EU, .*; the nearest is ORDERS_"),
        ((), ("pi",), "pi: no stream has this tag; there are eu, pii; the nearest is pii"),
        (("LOGS",), ("pii",), "pii: no stream of LOGS has this tag; those that have it are ORDERS_EU,"),
        (("NONE*", "LOGS"), (), "NONE*: this pattern"),
    ],
)  # fmt: skip
def test_a_pattern_or_tag_that_matches_nothing_is_refused(
    names: tuple[str, ...], tags: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence.replace("*:", r"\*:")):
        select(*names, tags=tags)


def test_without_any_stream_or_tag_the_sentence_says_what_to_write() -> None:
    empty = Config("/w")
    with pytest.raises(UsageError, match=r"A\*: there is no such stream in /w, nor any other"):
        select_streams(empty, list, ["A*"])
    with pytest.raises(UsageError, match=r"no stream has a tag; write `tags: \[pii\]`"):
        select_streams(empty, list, [], ["pii"])


def test_plain_names_list_no_directory() -> None:
    def refuse() -> list[str]:
        raise AssertionError("streams were listed")

    assert select_streams(LISTED, refuse, ["A", "B"]) == ["A", "B"]
    assert not is_pattern("a[b")


def test_a_pattern_among_topics_alone_speaks_of_topics(tmp_path: Path) -> None:
    warehouse = World(tmp_path, "delta").warehouse
    with pytest.raises(UsageError, match="matches none of 1 topic: clicks"):
        warehouse.chosen(("x*",), (), ["clicks"])
