from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sandboxes import Commands
from tests.support.topic_crashes import NAME, with_logs


@pytest.fixture(params=["delta", "parquet"])
def clicks(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    with_logs(tmp_path, request.param)
    command = Commands(tmp_path)
    command.json("import", "iggy-log", tmp_path / "iggy", "--topic", NAME)
    return command


def test_an_offset_is_stored_shown_listed_and_deleted(clicks: Commands) -> None:
    done = clicks.json("offset", "store", NAME, 0, "billing", 19)
    assert (done["stream"], done["partition"], done["kind"]) == (NAME, 0, "consumer")
    assert (done["name"], done["offset"], done["lag"]) == ("1795796488", 19, 10)
    assert clicks.json("offset", "get", NAME, 0, "billing") == done
    clicks.json("offset", "store", NAME, 1, 2, 4, "--kind", "group")
    listed = clicks.json("offset", "ls", NAME)
    assert [(one["partition"], one["kind"], one["name"], one["offset"]) for one in listed] == [
        (0, "consumer", "1795796488", 19),
        (0, "consumer", "7", 12),
        (1, "group", "2", 4),
    ]
    assert "1795796488" in clicks.run("offset", "ls", NAME).stdout
    assert clicks.json("offset", "delete", NAME, 0, "billing")["deleted"]
    assert "is deleted" in clicks.run("offset", "delete", NAME, 0, "7").stdout
    assert [one["name"] for one in clicks.json("offset", "ls", NAME)] == ["2"]


def test_an_offset_that_is_not_there_and_one_beyond_the_end_are_named(clicks: Commands) -> None:
    done = clicks.run("offset", "get", NAME, 0, "billing")
    assert done.exit_code == 2
    assert "consumer 1795796488 has stored no offset in partition 0" in done.stderr
    done = clicks.run("offset", "store", NAME, 0, "billing", 30)
    assert done.exit_code == 2
    assert "partition 0 ends at 29" in done.stderr


def test_a_saved_plan_does_not_act_against_an_offset_that_came_behind_it(clicks: Commands) -> None:
    saved = clicks.folder / "plan.json"
    assert clicks.run("plan", NAME, "-o", saved).exit_code == 0
    clicks.json("offset", "store", NAME, 0, 7, 4)
    done = clicks.run("apply", saved, "--yes")
    assert done.exit_code == 75
    assert "plan again" in done.stderr
    assert clicks.json("state", NAME)[0]["messages"] == 40
