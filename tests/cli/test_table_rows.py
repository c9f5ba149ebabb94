"""Rows of a table on the command line: explained by key and by place, listed and as SQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.retention.tables.test_explain import events
from tests.support.sandboxes import Commands

AS_OF = ("--as-of", "1970-04-11")


@pytest.fixture
def lake(tmp_path: Path) -> Commands:
    """A configuration that lists the table of `events`."""
    table = {
        "name": "events",
        "location": events(tmp_path).location,
        "time": "at",
        "key": ["tenant", "user"],
        "expires_at": "until",
        "max_age": "30d",
        "max_rows_per_key": 3,
    }
    home = tmp_path / "w"
    home.mkdir()
    (home / "retention.yaml").write_text(json.dumps({"warehouse": ".", "tables": [table]}))
    return Commands(home)


def test_rows_are_explained_by_key_and_by_place(lake: Commands) -> None:
    by_key = lake.json("explain", "events", "--key", "tenant=a,user=7", *AS_OF)
    assert by_key["key"] == {"tenant": "a", "user": 7}
    assert [row["goes"] for row in by_key["rows"]] == [True] * 4 + [False] * 3
    first = by_key["rows"][0]
    by_place = lake.json(
        "explain", "events", "--file", first["file"], "--row", first["row"], *AS_OF
    )
    assert by_place["rows"] == [first]
    text = lake.run("explain", "events", "--key", "tenant=a,user=7", *AS_OF).stdout
    assert "7 rows, 4 of them removed by a pass as of 1970-04-11T00:00:00Z" in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("events", "3"), "is a table, whose rows have no sequence"),
        (("events",), "name either a key, or a row"),
        (("events", "--key", "tenant=a,user=7", "--file", "x", "--row", "1"), "name either a key"),
        (("events", "--key", "city=a"), "name exactly the columns of the key"),
        (("events", "--key", "tenant=a,user=x"), "user is of the type integer"),
        (("orders", "--key", "tenant=a"), "no table has this name"),
    ],
)
def test_unclear_rows_are_refused(lake: Commands, arguments: tuple[str, ...], why: str) -> None:
    refused = lake.run("explain", *arguments)
    assert refused.exit_code == 2
    assert why in refused.stderr


def test_a_plan_lists_its_rows_and_prints_its_statements(lake: Commands, tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    done = lake.run("plan", "events", "--rows", place, "--sql", *AS_OF)
    assert (done.exit_code, done.stderr) == (0, f"wrote 4 rows to {place}\n")
    assert done.stdout.startswith("DELETE FROM delta.`")
    assert done.stdout.rstrip().endswith(";")
    assert len(place.read_text().splitlines()) == 5
    printed = lake.json("plan", "events", "--sql", *AS_OF)
    assert [statement.split()[0] for statement in printed["sql"]] == ["DELETE", "DELETE", "MERGE"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--sql",), "are of one table; name one of events"),
        (("ORDERS", "--sql"), "are of one table; name one of events"),
        (("events", "--sql", "--estimate"), "--rows and --sql print no plan"),
        (("events", "--rows", "rows.txt"), "write .parquet, .csv or .jsonl"),
    ],
)
def test_rows_and_statements_are_of_one_table(
    lake: Commands, arguments: tuple[str, ...], why: str
) -> None:
    refused = lake.run("plan", *arguments)
    assert refused.exit_code == 2
    assert why in refused.stderr
