"""Names that share a directory: detected from the directory itself, before the other stream is touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from retention.config import shared_directories
from retention.errors import RefusedError
from retention.stores.consumer_table import ConsumerTable
from tests.support.command_line import invoke
from tests.support.sandboxes import ORDERS, Commands, commands, lines
from tests.support.trees import tree

TWINS = [ORDERS, {"name": "Orders", "subjects": ["other.>"], "max_age": "1h"}]
LINE = '{"subject": "other.a", "data": "x"}'
ACTS = (
    ("publish", "Orders"),
    ("plan", "Orders"),
    ("apply", "Orders", "--yes"),
    ("messages", "Orders"),
    ("state", "Orders"),
    ("purge", "Orders", "--yes"),
    ("consumer", "add", "Orders", "billing"),
    ("validate",),
    ("doctor",),
)
Alias = Callable[[Path], None]


def a_link(streams: Path) -> None:
    (streams / "Orders").symlink_to("ORDERS", target_is_directory=True)


def a_copy(streams: Path) -> None:
    """A directory that looks like a second mount of another: no link, no other name."""
    shutil.copytree(streams / "ORDERS", streams / "Orders")


def a_link_of_messages(streams: Path) -> None:
    (streams / "Orders").mkdir()
    (streams / "Orders" / "messages").symlink_to("../ORDERS/messages", target_is_directory=True)


def a_link_of_runs(streams: Path) -> None:
    (streams.parent / "runs" / "Orders").symlink_to("ORDERS", target_is_directory=True)


def refused(command: Commands, words: tuple[str, ...]) -> None:
    done = command.run(*words, stdin=LINE)
    assert done.exit_code == 4, (words, done.output)
    said = " ".join((done.stdout + done.stderr).split())
    for part in ("stream Orders would share", "with stream ORDERS", str(command.folder)):
        assert part in said, (words, said)


@pytest.mark.parametrize("alias", [a_link, a_copy, a_link_of_messages, a_link_of_runs])
def test_a_stream_that_leads_to_another_ones_directory_is_refused(
    tmp_path: Path, alias: Alias
) -> None:
    command = commands(tmp_path / "w", *TWINS, format="parquet" if alias is a_link else "delta")
    command.json("publish", "ORDERS", stdin="\n".join(lines(9)))
    command.run("apply", "ORDERS", "--yes")
    alias(command.folder / "streams")
    before = tree(tmp_path)
    for words in ACTS:
        if words == ("validate",) and alias is a_copy:
            continue  # the configuration is right, and each stream has a directory
        refused(command, words)
        assert tree(tmp_path) == before, words
    assert command.json("state", "ORDERS")[0]["messages"] == 9
    (command.folder / "retention.yaml").unlink()
    bare = ["--warehouse", str(command.folder), "publish", "Orders", "-"]
    done = invoke(bare, stdin=LINE)
    assert (done.exit_code, "with stream ORDERS" in done.stderr) == (4, True), done.output


def test_a_directory_of_before_is_given_its_name_by_the_next_write(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", *TWINS)
    command.json("publish", "ORDERS", stdin="\n".join(lines(3)))
    said = command.folder / "streams/ORDERS/_retention/format.json"
    content = json.loads(said.read_text())
    assert content.pop("stream") == "ORDERS"
    said.write_text(json.dumps(content))
    assert command.json("state", "ORDERS")[0]["messages"] == 3
    assert "stream" not in json.loads(said.read_text())
    command.json("publish", "ORDERS", stdin="\n".join(lines(1)))
    assert json.loads(said.read_text())["stream"] == "ORDERS"


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated case-insensitive location."""
    look = shared_directories._identity

    def looking(place: str | Path, *, follow: bool = True) -> tuple[int, int] | None:
        above, name = Path(place).parent, Path(place).name.lower()
        if look(place) is None and above.is_dir():
            alike = [one for one in above.iterdir() if one.name.lower() == name]
            return look(alike[0], follow=follow) if alike else None
        return look(place, follow=follow)

    monkeypatch.setattr(shared_directories, "_identity", looking)


@pytest.mark.usefixtures("one_case")
def test_where_case_does_not_count_two_names_are_one(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", *TWINS)
    refused(command, ("validate",))
    refused(command, ("doctor",))
    command.json("publish", "ORDERS", stdin="\n".join(lines(3)))
    shared_directories.refuse_shared(str(command.folder), "ORDERS", [])
    with pytest.raises(RefusedError, match=r"stream Orders would share .* with stream ORDERS"):
        shared_directories.refuse_shared(str(command.folder), "Orders", [])
    assert commands(tmp_path / "one", ORDERS).run("validate").exit_code == 0


@pytest.mark.parametrize("part", ["streams/{}/messages", "runs/{}"])
def test_a_part_that_is_mounted_twice_belongs_to_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    command = commands(tmp_path / "w", *TWINS)
    for name, line in (("ORDERS", lines(1)[0]), ("Orders", LINE)):
        command.json("publish", name, stdin=line)
        (command.folder / "runs" / name).mkdir(parents=True, exist_ok=True)
    mounted, here = (command.folder / part.format(name) for name in ("Orders", "ORDERS"))
    look = shared_directories._identity
    monkeypatch.setattr(
        shared_directories,
        "_identity",
        lambda at, **how: look(here if Path(at) == mounted else at, **how),
    )
    for words in (("publish", "Orders"), ("apply", "Orders", "--yes"), ("validate",), ("doctor",)):
        refused(command, words)
    done = command.run("publish", "ORDERS", stdin=lines(1)[0])
    assert (done.exit_code, "with stream Orders" in done.stderr) == (4, True), done.output


def test_names_that_differ_in_case_are_two_where_the_place_tells(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", *TWINS)
    for name, line in (("ORDERS", lines(1)[0]), ("Orders", LINE)):
        assert command.run("publish", name, stdin=line).exit_code == 0
    assert [one["messages"] for one in command.json("state")] == [1, 1]
    for words in (("validate",), ("apply", "--yes")):
        assert command.run(*words).exit_code == 0


def test_consumers_that_share_a_directory_are_refused(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", ORDERS)
    command.json("publish", "ORDERS", stdin="\n".join(lines(3)))
    assert command.run("consumer", "add", "ORDERS", "Billing").exit_code == 0
    root = command.folder / "streams/ORDERS"
    (root / "consumers/billing").symlink_to("Billing", target_is_directory=True)
    with pytest.raises(
        RefusedError, match="billing would share its directory with consumer Billing"
    ):
        ConsumerTable(str(root)).read("billing")
