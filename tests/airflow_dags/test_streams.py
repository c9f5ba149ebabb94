from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_dags.streams import SECTIONS, Listed, group_id, listed_or_last, listed_streams
from retention import open_warehouse
from retention.config.load import ConfigFile

FILES = {
    "streams and topics": """
        warehouse: .
        streams: [{name: ORDERS, subjects: [orders.>], max_age: 30d}, {name: PAID, subjects: [paid]}]
        topics: [{name: clicks.eu, message_expiry: 7d}, {name: "two words"}]
    """,
    "text that YAML 1.1 reads as something else": """
        streams: [{name: NO, subjects: [a]}, {name: "010", subjects: [b]}, {name: 12:30:00, subjects: [c]}]
        topics: [{name: on}]
    """,
    "as the server prints it": """
        streams: [{config: {name: ORDERS, subjects: [orders.>]}, created: "2026-11-20T00:00:00Z"}]
    """,
    "a name as servers of 2023 wrote it": """
        topics: [{name: Two  Words, seed_names: true}, {name: Two Words, seed_names: false}]
    """,
    "buckets alone": """
        buckets: [{name: sessions, ttl: 1h}, {name: flags}]
    """,
    "all sections": """
        tables: [{name: events, location: lake/events}]
        topics: [{name: clicks}]
        buckets: [{name: sessions}]
        streams: [{name: ORDERS, subjects: [orders.>]}]
    """,
    "groups and tags": """
        groups:
          standard: {grace: 3d, tags: [standard, all]}
          pii: {group: standard, grace: 7d}
          empty: {group: pii, tags: }
          bare:
        defaults: {grace: 1d}
        streams:
          - {name: OWN, subjects: [a], group: pii, tags: [eu, eu, us]}
          - {name: INHERITED, subjects: [b], group: empty}
          - {name: NONE, subjects: [c], group: standard, tags: []}
          - {name: EMPTY, subjects: [d], group: , tags: null}
          - {config: {name: PRINTED, subjects: [e], group: pii}, created: "2026-11-20T00:00:00Z"}
        buckets: [{name: sessions, group: standard}]
        tables: [{name: events, location: lake/events, group: pii}, {name: own, location: lake/own, tags: [x]}]
        topics: [{name: clicks, group: pii}, {name: taps, tags: ["010"]}]
    """,
    "copies of live servers": """
        groups: {live: {sync: {server: "nats://a:1"}, max_age: 7d}}
        streams: [{name: A, sync: {server: "nats://a:1"}}, {name: B, group: live}, {name: C, subjects: [c]}]
        topics: [{name: clicks, stream: web, sync: {server: "a:1"}}, {name: taps}]
    """,
    "a merged mapping": """
        streams:
          - &one {name: ONE, subjects: [one], max_age: 7d}
          - {<<: *one, name: TWO, subjects: [two]}
    """,
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_the_names_are_those_that_a_command_without_a_name_acts_on(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(text, encoding="utf-8")
    warehouse = open_warehouse(file)
    listed = listed_streams(file)
    streams, tables = warehouse.chosen_with_tables()
    assert [stream.name for stream in listed] == [*streams, *tables]
    configured = {config.name: config for config in warehouse.config.tables}
    for stream in listed:
        config = configured.get(stream.name) or warehouse.config.stream(stream.name)
        assert config is not None
        assert (config.group, config.tags) == (stream.group, stream.tags)
    copies = [*warehouse.synced(), *warehouse.synced_topics()]
    assert {stream.name for stream in listed if stream.is_copy} == {*copies}


def test_every_list_of_a_configuration_is_read() -> None:
    lists = [name for name, field in ConfigFile.model_fields.items() if field.default == ()]
    assert list(SECTIONS) == lists


@pytest.mark.parametrize("wrapped", [False, True])
def test_one_stream_as_the_server_prints_it_is_a_file(tmp_path: Path, wrapped: bool) -> None:
    config = {"name": "ORDERS", "subjects": ["orders.>"], "max_age": 0}
    file = tmp_path / "orders.json"
    file.write_text(json.dumps({"config": config} if wrapped else config), encoding="utf-8")
    assert (
        [stream.name for stream in listed_streams(file)]
        == open_warehouse(file).chosen()
        == ["ORDERS"]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("streams: [", "streams cannot be read from it: while parsing"),
        ("streams: []", "lists no stream"),
        ("nothing", "lists no stream"),
    ],
)
def test_a_file_without_streams_is_one_sentence(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    file = tmp_path / "retention.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=reason) as raised:
        listed_streams(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


BOMB = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name}\n  <<: [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
WIDE = f"a: &a {{{', '.join(f'k{n}: 1' for n in range(1000))}}}\nb: {{<<: [{'*a, ' * 1000}]}}\n"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (BOMB, ":[5-8]: merge keys stand for more than 22,[0-9]{3} entries; write fewer of them$"),
        (WIDE, ":1: merge keys stand for more than [0-9,]+ entries"),
        (
            f"a: {'[' * 20_000}{']' * 20_000}\n",
            ":1: nests more than 64 deep; write the values out$",
        ),
        ("".join(f"{' ' * depth}a:\n" for depth in range(2_000)), ":65: nests more than 64 deep"),
        (f"#{'x' * (16 << 20)}\n", ":1: is longer than 16 MiB; write less$"),
    ],
    ids=["merge bomb", "wide merge", "brackets", "blocks", "long"],
)
def test_a_text_that_asks_for_too_much_is_refused_in_milliseconds(
    tmp_path: Path, head: str, reason: str
) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(f"{head}streams: [{{name: A}}]\n", encoding="utf-8")
    begun = time.process_time()
    with pytest.raises(ValueError, match=reason) as raised:
        listed_streams(file)
    assert time.process_time() - begun < 0.5
    assert str(raised.value).startswith(f"{file}:")


def test_thousands_of_streams_that_share_their_settings_are_read(tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    shared = ", ".join(f"k{n}: 1" for n in range(20))
    streams = "".join(f"  - {{<<: *all, name: S{n}}}\n" for n in range(3000))
    file.write_text(f"x: &all {{{shared}}}\nstreams:\n{streams}", encoding="utf-8")
    assert len(listed_streams(file)) == 3000


def test_ids_of_groups_are_what_airflow_takes_and_differ() -> None:
    names = ["ORDERS", "a_b", "a.b", "a b", "a/b", "ä", "x" * 255, "x" * 254, "x" * 150]
    ids = [group_id(name) for name in names]
    assert len(set(ids)) == len(names)
    assert all(len(identity) <= 150 and identity.isascii() for identity in ids)
    assert (ids[0], ids[1]) == ("ORDERS", "a_b")
    assert not {"configuration", "unlisted"} & {group_id("configuration"), group_id("unlisted")}
    guide = Path(__file__).parents[2] / "docs" / "airflow.md"
    assert f"has a group such as `{group_id('clicks.eu')}`" in guide.read_text(encoding="utf-8")


def test_reading_names_loads_nothing_of_the_engine() -> None:
    code = (
        "import sys, airflow_dags.streams, airflow_dags.steps, airflow_dags.ending, airflow_dags.engine; "
        "print(*sorted({'retention', 'pydantic', 'pyarrow', 'pyspark', 'jobs'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_the_last_names_stay_where_a_configuration_cannot_be_read_any_more(tmp_path: Path) -> None:
    file, kept = tmp_path / "retention.yaml", tmp_path / "reports" / "nightly" / "streams.json"
    file.write_text("streams: [", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be read from it"):
        listed_or_last(file, kept)
    file.write_text("streams: [{name: A}, {name: B, tags: [eu]}]", encoding="utf-8")
    assert listed_or_last(file, kept) == ([Listed("A"), Listed("B", None, ("eu",))], None)
    for broken in ("streams: [", "streams: []"):
        file.write_text(broken, encoding="utf-8")
        names, mistake = listed_or_last(file, kept)
        assert names == [Listed("A"), Listed("B", None, ("eu",))]
        assert str(mistake).startswith(f"{file}: ")
    with pytest.raises(ValueError, match="No such file"):
        listed_or_last(tmp_path / "other.yaml", kept)
    assert [path.name for path in kept.parent.iterdir()] == ["streams.json"]


def test_names_that_cannot_be_kept_are_no_mistake(tmp_path: Path) -> None:
    file, kept = tmp_path / "retention.yaml", tmp_path / "retention.yaml" / "streams.json"
    file.write_text("streams: [{name: A}]", encoding="utf-8")
    assert listed_or_last(file, kept) == ([Listed("A")], None)
