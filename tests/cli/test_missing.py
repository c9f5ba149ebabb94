"""A missing warehouse, configuration or stream is never a success; an empty warehouse is reported as such."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer.main
from typer.testing import Result

from retention.cli.main import app
from tests.support.command_line import invoke
from tests.support.jobs import run_job
from tests.support.sandboxes import ORDERS, Commands, commands, lines

NOBODY = "NOBODY"
RUN = "20261121T103209.739426394Z-a1b2c3"
OF_ALL = {
    "plan": ("plan",),
    "plan --estimate": ("plan", "--estimate"),
    "apply": ("apply", "--yes"),
    "compact": ("compact",),
    "compact --yes": ("compact", "--yes"),
    "reclaim": ("reclaim",),
    "reclaim --yes": ("reclaim", "--yes"),
    "reclaim --leftovers": ("reclaim", "--leftovers", "--yes"),
    "verify": ("verify",),
    "pause": ("pause", "--reason", "x"),
    "resume": ("resume", "--reason", "x"),
    "mirror": ("mirror",),
    "state": ("state",),
    "stats": ("stats",),
    "history": ("history",),
    "report": ("report",),
    "doctor": ("doctor",),
}
"""Commands that act on all streams by default."""
OF_ONE = {
    "export nats-backup": ("export", "nats-backup", NOBODY, "out.arc"),
    "mirror": ("mirror", NOBODY),
    "plan": ("plan", NOBODY),
    "plan --estimate": ("plan", NOBODY, "--estimate"),
    "apply": ("apply", NOBODY, "--yes"),
    "purge": ("purge", NOBODY, "--yes"),
    "drop": ("drop", NOBODY, "--yes"),
    "erase": ("erase", NOBODY, "--seq", "1", "--reason", "request", "--yes"),
    "erase --resume": ("erase", NOBODY, "--resume"),
    "delete": ("delete", NOBODY, "1", "--yes"),
    "delete-segments": ("delete-segments", NOBODY, "0", "1", "--yes"),
    "undo": ("undo", RUN),
    "undo --dry-run": ("undo", RUN, "--dry-run"),
    "restore": ("restore", NOBODY, "--as", "BACK"),
    "repair clock": ("repair", "clock", NOBODY),
    "repair sequences": ("repair", "sequences", NOBODY),
    "repair returned": ("repair", "returned", NOBODY),
    "repair foreign": ("repair", "foreign", NOBODY),
    "repair replay": ("repair", "replay", NOBODY),
    "repair place": ("repair", "place", NOBODY),
    "repair lost": ("repair", "lost", NOBODY),
    "repair lost-commit": ("repair", "lost-commit", NOBODY),
    "compact": ("compact", NOBODY),
    "reclaim": ("reclaim", NOBODY),
    "verify": ("verify", NOBODY),
    "hold add": ("hold", "add", NOBODY, "--reason", "x"),
    "hold ls": ("hold", "ls", NOBODY),
    "hold release": ("hold", "release", NOBODY, "--reason", "x"),
    "pause": ("pause", NOBODY, "--reason", "x"),
    "resume": ("resume", NOBODY, "--reason", "x"),
    "replay": ("replay", NOBODY, "--set", "max_age=1d"),
    "simulate": ("simulate", NOBODY, "--set", "max_age=1d"),
    "explain": ("explain", NOBODY, "1"),
    "messages": ("messages", NOBODY),
    "state": ("state", NOBODY),
    "sync nats": ("sync", "nats", NOBODY),
    "sync iggy": ("sync", "iggy", NOBODY),
    "consumer ls": ("consumer", "ls", NOBODY),
    "consumer info": ("consumer", "info", NOBODY, "c"),
    "consumer add": ("consumer", "add", NOBODY, "c"),
    "consumer update": ("consumer", "update", NOBODY, "c"),
    "consumer rm": ("consumer", "rm", NOBODY, "c", "--yes"),
    "consumer subscribe": ("consumer", "subscribe", "a", "--stream", NOBODY),
    "consumer fold": ("consumer", "fold", NOBODY, "acks.jsonl"),
    "offset store": ("offset", "store", NOBODY, "0", "c", "1"),
    "offset get": ("offset", "get", NOBODY, "0", "c"),
    "offset delete": ("offset", "delete", NOBODY, "0", "c"),
    "offset ls": ("offset", "ls", NOBODY),
    **{
        f"kv {command}": ("kv", NOBODY, command, *arguments)
        for command, *arguments in (
            ("get", "a"),
            ("update", "a", "1", "--revision", "0"),
            ("delete", "a"),
            ("purge", "a"),
            ("ls",),
            ("keys",),
            ("history", "a"),
            ("status",),
            ("watch", "--once"),
            ("purge-deletes", "--yes"),
        )
    },
    "stats": ("stats", NOBODY),
    "history": ("history", NOBODY),
    "history show": ("history", "show", RUN),
    "report": ("report", NOBODY),
    "doctor": ("doctor", NOBODY),
    "effective": ("effective", NOBODY),
    "view": ("view", NOBODY),
}
"""Commands that read or remove, each with a missing stream or run."""
WRITING = {
    *(
        "init",
        "adopt",
        "validate",
        "publish",
        "import nats-backup",
        "import iggy-log",
        "package",
        "airflow",
    ),
    *("kv add", "kv put", "kv create"),
}
"""Commands that create the named object, or read no stream."""
JOBS = {
    "retain": (),
    "compact": (),
    "reclaim": (),
    "mirror": (),
    "doctor": (),
    "verify": (),
    "fold": ("--log", "1.jsonl", "--stream", NOBODY),
}


def ended(place: tuple[str, ...], *arguments: str) -> Result:
    """The result of a command at an empty location."""
    done = invoke([*place, *arguments])
    assert "Traceback" not in done.output
    return done


def leaves() -> set[str]:
    """Every command, with its group's name before it."""
    found = set()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {})
        found |= {f"{name} {word}" for word in inner} or {name}
    return found


def test_the_tables_have_every_command() -> None:
    assert leaves() == {name for name in OF_ONE if name in leaves()} | WRITING


@pytest.mark.parametrize("name", OF_ONE)
def test_nothing_of_that_name_is_a_usage_error(tmp_path: Path, name: str) -> None:
    commands(tmp_path / "w", ORDERS)
    (tmp_path / "file").touch()
    for place in (
        ("--config", str(tmp_path / "w" / "retention.yaml")),
        ("--config", str(tmp_path / "none.yaml")),
        ("--warehouse", str(tmp_path / "none")),
        ("--warehouse", str(tmp_path)),
    ):
        done = ended(place, *OF_ONE[name])
        assert (done.exit_code, done.stdout) == (2, ""), place
        assert "Usage:" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "w"]


@pytest.mark.parametrize("name", OF_ALL)
def test_all_streams_of_no_warehouse_is_a_usage_error(tmp_path: Path, name: str) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("warehouse: ./none", encoding="utf-8")
    for place, sentence in {
        ("--warehouse", str(tmp_path / "none")): f"{tmp_path}/none: there is no warehouse at this",
        ("--warehouse", str(tmp_path)): f"{tmp_path}: is not a warehouse, because it has neither",
        ("--config", str(file)): f"{tmp_path}/none: there is no warehouse, which {file} names, at",
        ("--config", str(tmp_path / "none.yaml")): f"{tmp_path}/none.yaml: cannot be read",
    }.items():
        done = ended(place, *OF_ALL[name])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(sentence)


@pytest.mark.parametrize("option", ["--warehouse", "--config"])
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("orders.jsonl", "is data, .* store its messages with `retention publish STREAM {path}`"),
        ("orders.parquet", "is data, .*`retention-job ingest --stream STREAM --source {path}`"),
        ("table", "is a Delta table, not a warehouse; .* with `retention adopt {path}`"),
    ],
)
def test_data_in_place_of_a_warehouse_is_refused_with_the_way_to_read_it(
    tmp_path: Path, option: str, name: str, way: str
) -> None:
    path = tmp_path / name
    if path.suffix:
        path.write_bytes(b"{}")
    else:
        (path / "_delta_log").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for arguments in (("state",), ("publish", "ORDERS", "-")):
        done = ended((option, str(path)), *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert re.match(f"{path}: {way}".format(path=path), done.stderr)
    assert sorted(tmp_path.rglob("*")) == before


def test_several_streams_of_no_warehouse_are_one_mistake(tmp_path: Path) -> None:
    for command in ("plan", "state", "reclaim", "compact"):
        done = ended(("--warehouse", str(tmp_path / "none")), command, "A", "B")
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", [name for name in OF_ALL if name not in {"pause", "resume"}])
def test_an_empty_warehouse_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "w").mkdir()
    file = tmp_path / "w.yaml"
    file.write_text("warehouse: ./w", encoding="utf-8")
    for place in (("--warehouse", str(tmp_path / "w")), ("--config", str(file))):
        done = ended(place, *OF_ALL[name])
        assert done.exit_code == 0, done.output
        assert f"{tmp_path}/w: the warehouse is empty; no streams" in done.output


@pytest.mark.parametrize("name", JOBS)
def test_jobs_have_the_same_codes(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    local = ("--engine", "local", *JOBS[name])
    for place in (("--warehouse", "none"), ("--warehouse", "."), ("--config", "none.yaml"), ()):
        done = run_job(name, tmp_path, *place, *local)
        assert (done.returncode, done.stdout) == (2, ""), place
        assert len(done.stderr.splitlines()) == 1
    if name == "doctor":  # it continues with Spark, in another test
        return
    done = run_job(name, tmp_path, "--warehouse", "empty", *local)
    assert done.returncode == (2 if name == "fold" else 0), done.stderr
    wanted = "no such stream" if name == "fold" else "empty: the warehouse is empty; no streams"
    assert wanted in done.stdout + done.stderr
    commands(tmp_path / "w", ORDERS)
    done = run_job(name, tmp_path, "--config", "w/retention.yaml", *local, "--stream", NOBODY)
    assert done.returncode == 2


def test_a_configured_stream_without_data_is_there(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS)
    assert command.json("apply", "--yes")["streams"][0]["removed_messages"] == 0
    assert command.json("state")[0]["messages"] == 0


def test_a_publish_says_that_it_created_a_stream_that_nobody_configured(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS)
    message = "\n".join(lines(1))
    assert command.run("publish", "ORDERS", stdin=message).stderr == ""
    created = command.run("publish", "ORDER", stdin=message)
    assert created.exit_code == 0
    assert created.stderr.startswith("ORDER: this write created the stream; it is not in")
    assert created.stderr.endswith("did you mean ORDERS?\n")
    again = command.run("--format", "jsonl", "publish", "ORDER", stdin=message)
    assert (again.stderr, json.loads(again.stdout)["seq"]) == ("", 2)


def test_a_refused_publish_created_nothing(tmp_path: Path) -> None:
    done = commands(tmp_path).run("publish", "NEW", stdin="no JSON")
    assert done.exit_code != 0
    assert "created" not in done.stderr
    assert Commands(tmp_path).json("state") == []
