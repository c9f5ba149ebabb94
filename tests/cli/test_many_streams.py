"""Many streams in one file: selection by pattern and tag, totals, and work within a budget."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from retention.core.units import DAY
from tests.support.jobs import run_job
from tests.support.sandboxes import NOW, Commands, commands, lines

COUNT = 30
LATE = {3: 2, 7: 9, 12: 5}
"""Streams with overdue messages → days beyond `max_age`."""
AS_OF = str(NOW)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """Thirty streams; three of them are days behind their policy."""
    folder = tmp_path_factory.mktemp("many")
    command = commands(
        folder,
        *(
            {"name": f"S{n:02}", "subjects": [f"s{n}.>"], "max_age": "7d", "tags": ["even", "odd"][n % 2 :][:1]}
            for n in range(COUNT)
        ),
        engine="local",
    )  # fmt: skip
    for number, days in LATE.items():
        messages = lines(2, f"s{number}.a", NOW - (7 + days) * DAY)
        command.json("publish", f"S{number:02}", stdin="\n".join(messages))
    return command


def streams(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["stream"] for entry in entries]


def test_patterns_and_tags_select_in_every_command(many: Commands) -> None:
    assert streams(many.json("state", "S0[0-3]", "--tag", "odd")) == ["S01", "S03"]
    assert streams(many.json("plan", "S1*", "--tag", "even")["streams"])[:2] == ["S10", "S12"]
    assert streams(many.json("reclaim", "S2?")["streams"])[-1] == "S29"
    assert streams(many.json("apply", "S29*", "--yes")["streams"]) == ["S29"]
    assert streams(many.json("compact", "S28")["streams"]) == ["S28"]
    assert many.json("history", "--tag", "odd") == []
    assert many.run("doctor", "S00", "--tag", "odd").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        *(("plan", "X*"), ("apply", "X*", "--yes"), ("state", "X*"), ("compact", "S*")),
        *(("reclaim", "X*"), ("mirror", "S*"), ("stats", "S*"), ("history", "X*"), ("doctor", "X*")),
    ],
)  # fmt: skip
def test_what_matches_nothing_is_a_usage_error(many: Commands, words: tuple[str, ...]) -> None:
    for given in (words, (words[0], "--tag", "evn", *words[2:])):
        done = many.run(*given)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert len(done.stderr.splitlines()) == 1
    assert "evn: no stream has this tag; there are even, odd; the nearest is even" in done.stderr


@pytest.mark.parametrize("name", ["retain", "compact", "reclaim", "mirror", "doctor"])
def test_jobs_select_alike(many: Commands, name: str) -> None:
    for given in (("--stream", "X*"), ("--tag", "evn")):
        done = run_job(name, many.folder, "--engine", "local", *given)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr


def test_streams_of_which_the_same_is_said_share_a_line(many: Commands) -> None:
    said = many.run("plan", "--as-of", AS_OF).stdout.splitlines()
    assert [line.split(":")[0] for line in said if not line.startswith(" ")] == [
        *("S03", "S07", "S12", "S00 and 26 more")
    ]
    assert said[-1] == "S00 and 26 more: nothing to remove as of 2027-01-15T08:00:00Z"
    meant = many.run("validate").stdout.splitlines()
    assert [line.split(":")[0] for line in meant] == ["S00 and 14 more", "S01 and 14 more"]
    rows = many.run("state").stdout.splitlines()
    assert [row.split()[0] for row in rows[1:4]] == ["S03", "S07", "S12"]
    assert rows[4].startswith("30 streams, 27 of them empty: 6 messages (")
    assert len(many.json("state")) == COUNT


def test_a_few_streams_have_a_line_each(many: Commands) -> None:
    said = many.run("plan", "S0?", "--as-of", AS_OF).stdout
    assert "S00: nothing to remove as of" in said
    assert "S01: nothing to remove as of" in said


def test_a_budget_chooses_the_most_overdue_and_says_what_is_left(many: Commands) -> None:
    budget = ("--max-time", "0s", "--as-of", AS_OF)
    done = many.run("--format", "json", "apply", "--yes", *budget, "--allow-future")
    assert done.exit_code == 0, done.output
    entries = json.loads(done.stdout)["streams"]
    assert streams(entries)[:3] == ["S07", "S12", "S03"]
    assert sorted(streams(entries)) == [f"S{n:02}" for n in range(COUNT)]
    assert entries[0]["left"] == {
        "budget": "--max-time",
        "since_ns": NOW - 9 * DAY,
        "messages_at_least": 2,
        "bytes_at_least": entries[0]["left"]["bytes_at_least"],
    }
    assert entries[0]["removed_messages"] == 0
    sentence = (
        "30 streams left for the next run (--max-time is spent), 3 of them late: the most overdue is "
        "S07, by 9d"
    )
    assert done.stderr.splitlines()[-1] == sentence
    text = many.run("apply", "--yes", *budget, "--allow-future").stdout
    assert text == "S07 and 29 more: left for the next run\n"
    job = run_job(
        "retain", many.folder, "--engine", "local", "--max-bytes", "0", "--as-of", "2026-11-20",
        "--report-file", "report.json",
    )  # fmt: skip
    assert job.returncode == 0, job.stderr
    assert "; 30 streams left for the next run (--max-bytes is spent), none of them" in job.stdout
    report = json.loads((many.folder / "report.json").read_text(encoding="utf-8"))
    assert report["streams"][0]["left"]["budget"] == "--max-bytes"


def test_without_anything_spent_all_is_done_most_overdue_first(tmp_path: Path) -> None:
    command = commands(
        tmp_path,
        *({"name": name, "subjects": [f"{name}.>"], "max_age": "7d"} for name in ("A", "B")),
        engine="local",
    )
    for name, days in (("A", 8), ("B", 9)):
        messages = lines(2, f"{name}.a", NOW - days * DAY)
        command.json("publish", name, stdin="\n".join(messages))
    wide = ("--max-time", "1h", "--max-bytes", "1GiB", "--allow-future")
    entries = command.json("apply", "--yes", "--as-of", AS_OF, *wide)["streams"]
    assert [(entry["stream"], entry["removed_messages"]) for entry in entries] == [
        ("B", 2),
        ("A", 2),
    ]
    assert not any("left" in entry for entry in entries)


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "--yes", "--max-time", "soon"),
        ("apply", "--yes", "--max-bytes", "-1"),
        ("apply", "plan.json", "--yes", "--max-time", "1h"),
    ],
)
def test_a_budget_that_says_nothing_or_for_a_plan_is_refused(
    many: Commands, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(many.folder)
    if not os.path.exists("plan.json"):  # noqa: PTH110
        many.run("plan", "S03", "-o", "plan.json")
    done = many.run(*words)
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1


def test_effective_says_where_values_come_from(many: Commands) -> None:
    answer = many.json("effective", "S00")
    assert answer["file"].endswith("retention.yaml")
    known = {setting["key"]: setting for setting in answer["settings"]}
    assert known["max_age"]["value"] == 7 * DAY
    assert known["max_age"]["source"] == "stream S00"
    assert known["engine"]["source"] == "defaults"
    head, *rows = many.run("effective", "S00").stdout.splitlines()
    assert head.split() == ["KEY", "VALUE", "FROM"]
    assert "max_age" in "".join(rows)
    assert "built in" not in "".join(rows)
    assert "built in" in many.run("effective", "S00", "--all").stdout


def test_the_state_shows_those_longest_behind_first(tmp_path: Path) -> None:
    behind = {"S07": 9, "S12": 5, "S03": 2}
    names = [f"S{number:02}" for number in range(COUNT)]
    command = commands(
        tmp_path,
        *({"name": name, "subjects": [f"{name}.>"], "max_age": "7d"} for name in names),
        engine="local",
    )
    for name, days in behind.items():
        messages = lines(2, f"{name}.a", time.time_ns() - (7 + days) * DAY)  # noqa: TID251  (commands read it, too)
        command.json("publish", name, stdin="\n".join(messages))
    assert streams(command.json("state", "--behind")) == list(behind)
    assert streams(command.json("state", "--top", "2")) == ["S07", "S12"]
    assert streams(command.json("state", "S0*", "--behind", "--top", "1")) == ["S07"]
    assert streams(command.json("state")) == names
    _, *rows = command.run("state").stdout.splitlines()
    assert [row.split()[0] for row in rows[:3]] == list(behind)
    assert "3 behind their policy" in rows[-1]
