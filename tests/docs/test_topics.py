"""The pages on topics, checked against the configuration and the code."""

from __future__ import annotations

import re
from pathlib import Path

from retention.config.keeping import KeepingSettings, Selected
from retention.config.topic import TopicConfig
from retention.core.iggy_units import parse_expiry, parse_topic_size
from retention.rules.iggy.delete_segments import MOST_SEGMENTS
from retention.stores.offset_table import reader_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "semantics" / "topics.md").read_text()


def test_every_key_of_a_topic_is_documented_with_its_default() -> None:
    section = (
        (DOCS / "reference" / "configuration.md")
        .read_text()
        .split("## A topic\n")[1]
        .split("\n## ")[0]
    )
    rows = re.findall(r"^\| `(\w+)` \| .+? \| (.*?) \|", section, re.MULTILINE)
    shared = {*KeepingSettings.model_fields, *Selected.model_fields}
    ours = [name for name in TopicConfig.model_fields if name not in shared]
    rows = [row for row in rows if row[0] not in shared]
    assert sorted(name for name, _ in rows) == sorted(ours)
    said = {name: default.strip("`") for name, default in rows if default.startswith("`")}
    typed = {"partitions": int(said.pop("partitions"))}
    assert said.pop("holds") == "[]"
    flags = {key: said.pop(key) == "true" for key in ("respect_consumer_offsets", "seed_names")}
    assert TopicConfig.model_validate({"name": "t"} | said | typed | flags) == TopicConfig(name="t")


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    [number] = re.findall(r"`billing` is (\d+)", PAGE)
    assert reader_of(0, "consumer", "billing").name == number
    assert f"PARTITION {MOST_SEGMENTS}`" in PAGE
    [words] = re.findall(r"^\| both \| (.+) \| no limit \|", PAGE, re.MULTILINE)
    for word in re.findall(r"`(\w+)`", words):
        assert parse_expiry(word) == parse_topic_size(word) == 2**64 - 1
