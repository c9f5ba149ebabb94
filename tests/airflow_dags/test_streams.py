from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_dags.streams import group_id, stream_names
from retention.config import load_config

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
    "a merged mapping": """
        streams:
          - &one {name: ONE, subjects: [one], max_age: 7d}
          - {<<: *one, name: TWO, subjects: [two]}
    """,
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_the_names_are_those_that_the_engine_reads(tmp_path: Path, text: str) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(text, encoding="utf-8")
    assert stream_names(file) == [stream.name for stream in load_config(file).streams]


@pytest.mark.parametrize("wrapped", [False, True])
def test_one_stream_as_the_server_prints_it_is_a_file(tmp_path: Path, wrapped: bool) -> None:
    config = {"name": "ORDERS", "subjects": ["orders.>"], "max_age": 0}
    file = tmp_path / "orders.json"
    file.write_text(json.dumps({"config": config} if wrapped else config), encoding="utf-8")
    assert stream_names(file) == [stream.name for stream in load_config(file).streams] == ["ORDERS"]


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
        stream_names(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_ids_of_groups_are_what_airflow_takes_and_differ() -> None:
    names = ["ORDERS", "a_b", "a.b", "a b", "a/b", "ä", "x" * 255, "x" * 254, "x" * 150]
    ids = [group_id(name) for name in names]
    assert len(set(ids)) == len(names)
    assert all(len(identity) <= 150 and identity.isascii() for identity in ids)
    assert (ids[0], ids[1]) == ("ORDERS", "a_b")


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
