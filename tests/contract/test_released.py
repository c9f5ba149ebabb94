"""Streams with row tombstones as commit 64accb89 wrote them are refused, and read again after its `compact`."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.support.sandboxes import Commands

FIXTURE = Path(__file__).parents[1] / "fixtures" / "released-2026-11.tar.gz"
REFUSAL = (
    "stream OPEN: an earlier build released messages in 1 file of it without rewriting them, and this one would show "
    "those messages again; nothing was changed; set compact: {dead_share: 0} for the stream, run `retention compact` "
    "of commit 64accb89 of this project, which rewrites these files, then come back"
)


@pytest.fixture
def released(tmp_path: Path) -> Commands:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Commands(tmp_path)


@pytest.fixture
def earlier(released: Commands) -> Commands:
    """The warehouse with `release_share` at 0, which has no effect."""
    share(released, 0)
    return released


def share(commands: Commands, value: int | str) -> None:
    file = commands.folder / "retention.yaml"
    config = json.loads(file.read_text(encoding="utf-8"))
    for stream in config["streams"]:
        stream["release_share"] = value
    file.write_text(json.dumps(config), encoding="utf-8")


def test_release_share_is_refused_by_a_sentence(released: Commands) -> None:
    refused = released.run("state", "DONE")
    assert refused.exit_code == 2
    assert "release_share: stream OPEN: files are rewritten as soon as" in refused.output
    assert "delete this line" in refused.output


@pytest.mark.parametrize(
    "words",
    [
        "messages OPEN",
        "state OPEN",
        "plan OPEN",
        "apply OPEN --yes",
        "compact OPEN",
        "reclaim OPEN",
    ],
)
def test_commands_refuse_a_stream_with_row_tombstones(earlier: Commands, words: str) -> None:
    refused = earlier.run(*words.split())
    assert refused.exit_code == 4, refused.output
    assert REFUSAL in refused.output


@pytest.mark.parametrize("stream", ["DONE", "PLAIN"])
def test_a_stream_is_read_after_the_remedy_that_its_refusal_names(
    earlier: Commands, stream: str
) -> None:
    assert [row["seq"] for row in earlier.json("messages", stream)] == list(range(4, 11))
    [state] = earlier.json("state", stream)
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (7, 4, 10)
    [billing] = earlier.json("consumer", "ls", stream)
    assert (billing["name"], billing["ack_floor"]["stream_seq"]) == ("billing", 3)
    applied = earlier.run("apply", stream, "--yes")
    assert applied.exit_code == 0, applied.output


@pytest.mark.parametrize("stream", ["DONE", "PLAIN"])
def test_what_was_released_is_not_brought_back_by_this_build(
    earlier: Commands, stream: str
) -> None:
    [run] = [run["run"] for run in earlier.json("history", stream) if run["kind"] == "apply"]
    refused = earlier.run("undo", run)
    assert refused.exit_code == 4, refused.output
    assert (
        f"{stream}: an earlier build released messages in the files of run {run} without rewriting them, and this "
        "one cannot tell those messages from the others; nothing was changed; undo it with commit 64accb89 of this "
        "project"
    ) in refused.output
    assert [row["seq"] for row in earlier.json("messages", stream)] == list(range(4, 11))


def test_a_plan_with_release_share_is_made_again(earlier: Commands) -> None:
    refused = earlier.run("apply", earlier.folder / "open.plan.json", "--yes")
    assert refused.exit_code == 75, refused.output
    assert (
        "an earlier build made this plan of stream OPEN with release_share, which this one does not know; nothing was "
        "changed; plan again"
    ) in refused.output
