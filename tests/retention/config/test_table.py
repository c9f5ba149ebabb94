from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from retention.config import Config, explain_config, load_config
from retention.config.effective import effective_table_settings
from retention.config.json_schema import json_schema
from retention.config.table_types import format_column, parse_column
from retention.core.removal_guards import GuardLimit
from retention.core.table_policy import RowPolicy, TableColumns, TableLimits, TablePolicy
from retention.core.units import DAY, parse_size
from retention.errors import ConfigError
from retention.storage.checksum import parse_json

WHOLE = """\
warehouse: ./warehouse
defaults: {format: parquet, grace: 3d, guards: {max_removed_share: 50%}}
groups:
  pii: {max_age: 7d, tags: [pii], approve: true}
tables:
  - name: events
    location: s3://lake/events/
    time: event_ts
    key: [tenant, user.id]
    order: kafka_offset
    size: "`body.bytes`"
    expires_at: expires_at
    max_age: 90d
    max_rows_per_key: 5
    max_rows: 1000000000
    max_bytes: 2TiB
    policies:
      - {where: {tenant: [acme, null]}, max_age: 30d}
      - {where: {tenant: globex, ratio: 0.1, live: true}, max_age: off, expires_at: off}
  - {name: sessions, location: ../lake/sessions, group: pii, time: at, zone: Europe/Berlin}
  - {name: gold, location: main.gold.clicks, time: ts_ms, unit: ms, exclusive: true, guards: {}}
"""
LIMITS = TableLimits(90 * DAY, 5, 1_000_000_000, parse_size("2TiB"), expires=True)


def load(folder: Path, text: str) -> Config:
    path = folder / "retention.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(folder, text)
    return [
        line.removeprefix(f"{folder / 'retention.yaml'}:") for line in str(error.value).splitlines()
    ]


def test_every_key_of_a_table_reaches_its_policy(tmp_path: Path) -> None:
    events, _, gold = load(tmp_path, WHOLE).tables
    acme = RowPolicy(
        ((("tenant",), ("acme", None)),),
        TableLimits(30 * DAY, 5, 1_000_000_000, parse_size("2TiB"), expires=True),
        frozenset({"max_age"}),
    )
    others = RowPolicy(
        ((("tenant",), ("globex",)), (("ratio",), (Decimal("0.1"),)), (("live",), (True,))),
        TableLimits(None, 5, 1_000_000_000, parse_size("2TiB"), expires=False),
        frozenset({"max_age", "expires_at"}),
    )
    columns = TableColumns(
        time=("event_ts",),
        key=(("tenant",), ("user", "id")),
        order=(("kafka_offset",),),
        size=("body.bytes",),
        expires_at=("expires_at",),
    )
    assert events.policy == TablePolicy(columns, LIMITS, (acme, others))
    assert (gold.columns.unit, gold.exclusive, gold.guards.rule().max_removed_share) == (
        *("ms", True, None),
    )


def test_a_table_takes_defaults_and_groups_as_streams_do_and_is_no_stream(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE)
    events, sessions, gold = config.tables
    assert config.streams == ()
    assert [table.grace_ns for table in config.tables] == [3 * DAY] * 3
    assert events.guards.rule().max_removed_share == GuardLimit(50)
    assert (sessions.tags, sessions.policy.limits.max_age_ns) == (("pii",), 7 * DAY)
    assert sessions.approve is not None
    assert (events.approve, gold.group) == (None, None)


def test_every_value_of_a_table_says_where_it_comes_from(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE)
    events, sessions, _ = (
        {setting.key: setting for setting in effective_table_settings(config, table)}
        for table in config.tables
    )
    assert {key: (value.text, value.source) for key, value in events.items()}.items() >= {
        "format": ("delta", "built in"),
        "grace": ("3d", "defaults"),
        "max_age": ("90d", "table events"),
        "size": ("`body.bytes`", "table events"),
        "key": ('["tenant", "user.id"]', "table events"),
        "zone": ("none", "built in"),
        "policies": (
            "where tenant is acme or null: max_age 30d; where tenant is globex and ratio is 0.1 and live is true: "
            "max_age off, expires_at off",
            "table events",
        ),
    }.items()
    assert events["policies"].value[0] == {
        "where": {"tenant": ["acme", None]},
        "max_age": 30 * DAY,
    }
    assert sessions["max_age"].source == "group pii"
    assert (sessions["max_rows"].text, sessions["location"].source) == ("off", "table sessions")


def test_a_location_is_relative_to_the_file_or_a_name_in_a_catalog(tmp_path: Path) -> None:
    locations = [table.location for table in load(tmp_path, WHOLE).tables]
    beside = str(tmp_path.parent / "lake" / "sessions")
    assert locations == ["s3://lake/events", beside, "main.gold.clicks"]


def test_a_table_is_explained_in_words_of_tables(tmp_path: Path) -> None:
    events, sessions, gold = explain_config(load(tmp_path, WHOLE))
    counts = "when 1,000,000,000 newer ones exist, or when it and newer ones exceed 2 TiB by `body.bytes`"
    assert events == (
        "events: a row is removed at its expires_at, or 90 days after its event_ts, or when 5 newer ones exist with "
        f"its tenant, user.id, or {counts}. Where tenant is acme or null: a row is removed at its expires_at, or 30 "
        f"days after its event_ts, or when 5 newer ones exist with its tenant, user.id, or {counts}. Where tenant is "
        "globex and ratio is 0.1 and live is true: a row is removed when 5 newer ones exist with its tenant, user.id, "
        f"or {counts}. The order of rows is that of kafka_offset. A pass that removes more than 50% of the rows is "
        "refused. Removed files are kept 3 days."
    )
    assert "Times without a zone are those of Europe/Berlin." in sessions
    assert sessions.endswith("Scheduled jobs ask a person before any row is removed.")
    assert gold == (
        "gold: no limit removes a row. Times in integers are milliseconds since the epoch. Removed files are kept 3 "
        "days."
    )
    assert not any(
        word in f"{events}{sessions}{gold}" for word in ("message", "subject", "sequence")
    )


REFUSED = [
    ("max_age: 3d", "max_age", "no column has the time of a row; write time: COLUMN"),
    ("time: t, max_age: 0", "max_age", "0 is out of range: write at least 1ns, or off"),
    ("time: t, max_rows: 1e6", "max_rows", "1000000.0 is not a count: write an integer, such as"),
    ("time: t, max_rows_per_key: 5", "max_rows_per_key", "no column has the key of a row; write"),
    ("max_rows: 5", "max_rows", "nothing says which rows are the newest; write time: COLUMN, or order"),
    ("order: o, max_bytes: 5GB", "max_bytes", "whole files are removed where no column has the size"),
    ("zone: UTC", "zone", "there is no column of times that has a zone; write time: COLUMN, or remove"),
    ("unit: ms", "unit", "there is no column of times that has a unit; write time: COLUMN, or remove"),
    ("time: t, zone: Berlin", "zone", "'Berlin' is not a time zone: write an IANA name, such as Europe/Berlin"),
    ("time: t, unit: sec", "unit", "'sec' is not one of s, ms, us, ns"),
    ("time: [t]", "time", "['t'] is not a column; write the name of one"),
    ("time: Order Id", "time", "'Order Id' is not a column: write a name, or event.at"),
    ('key: "a, b"', "key", "'a, b' is not a column: write a name, or event.at for a nested one, with backticks around "
     "a name with a dot or a blank, such as [a, b]"),
    ("format: iceberg", "format", "'iceberg' is no format of a table in place: write delta for a Delta"),
    ("format: parquet, time: t, key: k, max_rows_per_key: 5", "max_rows_per_key",
     "a directory of Parquet files has no log, so that only whole files can be removed"),
    ("format: parquet, time: t, key: k, policies: [{where: {a: 1}, max_rows_per_key: 5}]",
     "policies.0.max_rows_per_key", "a directory of Parquet files has no log"),
    ("max_row: 5", "max_row", "there is no such key; did you mean `max_rows`?"),
    ("time: t, policies: [{where: {a: 1}}]", "policies.0.where", "names no limit, so these rows have those"),
    ("time: t, policies: [{where: {}, max_age: 1d}]", "policies.0.where", "{} is no equality, and rows are selected"),
    ("time: t, policies: [{where: a = 1, max_age: 1d}]", "policies.0.where", "'a = 1' is no equality"),
    ('time: t, policies: [{where: {a: "> 5"}, max_age: 1d}]', "policies.0.where.a", "'> 5' is no equality"),
    ("time: t, policies: [{where: {a: {not: 1}}, max_age: 1d}]", "policies.0.where.a", "{'not': 1} is no equality"),
    ("time: t, policies: [{where: {a: []}, max_age: 1d}]", "policies.0.where.a", "names no value, so no row matches"),
    ("time: t, policies: [{where: {a: [[1]]}, max_age: 1d}]", "policies.0.where.a", "[1] is not a value of a column"),
    ("time: t, policies: [{where: {a: 1, '`a`': 2}, max_age: 1d}]", "policies.0.where", "names a column twice"),
    ("policies: [{where: {a: 1}, max_age: 1d}]", "policies.0.max_age", "no column has the time of a row"),
    ("time: t, policies: [{where: {a: 1}, expires_at: off}]", "policies.0.expires_at", "no column has the instant"),
    ("time: t, policies: [{where: {a: 1}, max_rows_per_key: 2}]", "policies.0.max_rows_per_key", "no column"),
    (
        "time: t, policies: [{where: {a: [1, 2]}, max_age: 1d}, {where: {a: 2, b: 3}, max_age: 2d}]",
        "policies.1.where",
        "no row reaches this policy, because policies.0 matches all of them; put it before that one",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "place", "text"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_table_that_cannot_work_is_a_mistake(
    tmp_path: Path, keys: str, place: str, text: str
) -> None:
    [mistake] = mistakes(tmp_path, f"tables:\n  - {{name: T, location: t, {keys}}}")
    assert mistake.startswith(f"2: {place}: table T: {text}")


@pytest.mark.parametrize("where", ["{b: 1}", "{a: [1, 2]}", "{a: 2, b: 1}", "{a: null}"])
def test_a_policy_that_some_rows_reach_is_accepted(tmp_path: Path, where: str) -> None:
    policies = f"[{{where: {{a: 1}}, max_age: 1d}}, {{where: {where}, max_age: 2d}}]"
    text = f"tables:\n  - {{name: T, location: t, time: t, policies: {policies}}}"
    assert len(load(tmp_path, text).tables[0].policies) == 2


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ("{name: S, location: a}", "name: table S: a stream, a topic or another table has this"),
        ("{name: t, location: a}", "name: table t: a stream, a topic or another table has this"),
        ("{name: A, location: ./b}", "location: table A: table B is at this location, too; give"),
        ("{name: B, location: c}", "name: table B: a stream, a topic or another table has this"),
        ("{name: a.b, location: c}", "name: table a.b: 'a.b' is not a name: write 1 to 255 bytes"),
        ("{name: A}", "location: table A: is missing"),
        ("{name: A, location: gs://x/y}", "location: table A: 'gs://x/y' is neither a path nor"),
        ("{name: A, location: w/streams/S}", "location: table A: lies in"),
        ("{name: A, location: w/tables}", "location: table A: lies in"),
        ("{name: A, location: w}", "location: table A: the warehouse"),
        ("{name: A, location: .}", "location: table A: the warehouse"),
        (
            "{name: A, location: s3://x/y, format: parquet}",
            "location: table A: an object store has no rename, so that a file",
        ),
        (
            "{name: A, location: c.s.t, format: parquet}",
            "location: table A: a directory of Parquet files has no name in a catalog",
        ),
        (
            "{name: A, location: ., format: parquet}",
            "location: table A: the warehouse",
        ),
        ("{name: A, location: a, group: none}", "group: table A: no group is called 'none'"),
        ("A", "'A' is not a mapping; write `- name: …`"),
    ],
)
def test_tables_among_streams_and_in_a_warehouse(
    tmp_path: Path, tables: str, expected: str
) -> None:
    text = f"""\
warehouse: w
streams: [{{name: S}}]
topics: [{{name: t}}]
tables:
  - {{name: B, location: b}}
  - {tables}
"""
    [mistake] = mistakes(tmp_path, text)
    assert mistake.partition(": tables.1: ")[2].startswith(expected) or mistake.startswith(
        f"6: {expected}"
    )


def test_a_group_of_tables_has_no_location_and_is_checked_as_a_table(tmp_path: Path) -> None:
    text = "groups:\n  g: {max_rows_per_key: 5, zone: Mars, location: x}\n  h: {key: k, time: t}\n"
    assert [line[:38] for line in mistakes(tmp_path, text)] == [
        "2: location: group g: is that of one t",
        "2: zone: group g: 'Mars' is not a time",
    ]


def test_a_mistake_of_a_policy_does_not_hide_those_of_the_table(tmp_path: Path) -> None:
    text = "tables:\n  - {name: T, location: t, max_age: 1d, policies: [{where: 1}]}"
    assert len(mistakes(tmp_path, text)) == 2


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("at", ("at",)),
        ("event.at", ("event", "at")),
        ("`event.at`", ("event.at",)),
        ("`a b`.`c``d`.e", ("a b", "c`d", "e")),
        ("größe", ("größe",)),
    ],
)
def test_a_column_is_written_as_it_is_read(text: str, column: tuple[str, ...]) -> None:
    assert parse_column(text) == column
    assert format_column(column) == text


def test_the_schema_for_editors_accepts_what_is_read(tmp_path: Path) -> None:
    validator = Draft202012Validator(parse_json(json_schema()))
    document = YAML(typ="safe", pure=True).load(WHOLE)
    assert [error.json_path for error in validator.iter_errors(document)] == []
    document["tables"][0]["policies"][0]["max_age"] = "soon"
    document["tables"][1]["max_row"] = 5
    assert sorted(error.json_path for error in validator.iter_errors(document)) == [
        "$.tables[0].policies[0].max_age",
        "$.tables[1]",
    ]
