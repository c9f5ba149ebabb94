from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.config.locations import refused_location
from retention.errors import UsageError
from retention.formats.ack.sources import open_log
from retention.plan.planfile import load_plans
from retention.storage import files
from retention.storage.places import place_of, refused_table, spellings
from tests.support.command_line import invoke
from tests.support.jobs import run_job
from tests.support.sandboxes import NOW, ORDERS, commands, configured, lines

FOREIGN = [
    ("dbfs:/lake", "write /dbfs/…"),
    ("file:/lake", "write file:///path, or the path alone"),
    ("file://host/lake", "write file:///path, or the path alone"),
    ("s3:/bucket/lake", "one slash too few"),
    ("s3a:/bucket/lake", "one slash too few"),
    ("S3://bucket/lake", "one slash too few"),
    ("abfss://account/lake", "neither a path nor s3://bucket/prefix"),
    ("hdfs:/lake", "neither a path nor s3://bucket/prefix"),
]
TABLES = ["main.events.orders", "`my cat`.events.orders"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3a://bucket/lake", "s3://bucket/lake"),
        ("s3://bucket/lake", "s3://bucket/lake"),
        ("file:///srv/lake", "/srv/lake"),
        ("srv/lake", "srv/lake"),
        ("a:b/lake", "a:b/lake"),
        ("/srv/2026:/lake", "/srv/2026:/lake"),
        ("C:/lake", "C:/lake"),
    ],
)
def test_a_place_has_one_form(text: str, place: str) -> None:
    assert place_of(text) == place
    assert place_of(place) == place


@pytest.mark.parametrize(("text", "remedy"), FOREIGN)
def test_a_place_of_others_is_never_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, remedy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    configured(tmp_path / "c", ORDERS)
    acts: list[Callable[[], object]] = [
        lambda: place_of(text),
        lambda: files.replace(text, b""),
        lambda: open_warehouse(text),
        lambda: open_log(text),
        lambda: load_plans(text),
    ]
    for act in acts:
        with pytest.raises(UsageError, match=remedy):
            act()
    config = (
        "--config",
        "c/retention.yaml",
        "--engine",
        "local",
        "--as-of",
        "2020-01-01T00:00:00Z",
    )
    done = run_job("retain", tmp_path, *config, "--report-file", text)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert remedy in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


@pytest.mark.parametrize(
    ("text", "remedy"), [*FOREIGN, *((one, f"./{one} for a directory") for one in TABLES)]
)
def test_a_configuration_names_no_place_of_others(tmp_path: Path, text: str, remedy: str) -> None:
    for key in ("warehouse", "archive"):
        settings = {"warehouse": text} if key == "warehouse" else {"defaults": {"archive": text}}
        file = tmp_path / "retention.yaml"
        file.write_text(json.dumps({**settings, "streams": [ORDERS]}))
        done = invoke(["--config", str(file), "validate"])
        assert done.exit_code == 2
        assert f": {key}: " in done.stderr.replace("defaults.", "").replace("defaults: ", "")
        assert remedy in done.stderr
    done = invoke(["--warehouse", text, "state"])
    assert done.exit_code == 2
    assert remedy in done.stderr


@pytest.mark.parametrize(
    "text", ["lake", "./a.b.c", "a.b", "a.b.c.d", "a.b/c.d", "v1.2.3", "a.b.c/"]
)
def test_a_directory_is_no_table(text: str) -> None:
    assert refused_table(text) is None
    assert refused_location(text) is None


@pytest.mark.parametrize("text", ["", "s3://", "s3a:///", "s3://bucket", "/", "file:///"])
def test_a_location_is_somewhere(text: str) -> None:
    somewhere = text in ("s3://bucket", "/", "file:///")
    assert (refused_location(text) is None) == somewhere


def test_file_and_path_are_the_same_place(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", ORDERS)
    command.json("publish", "ORDERS", stdin="\n".join(lines(30)))
    for place in (tmp_path / "w", tmp_path / "w" / "retention.yaml"):
        same = open_warehouse(f"file://{place}", clock=lambda: NOW)
        assert same.location == str(tmp_path / "w")
        assert same.stream("ORDERS").state().messages == 30
    (tmp_path / "retention.yaml").write_text(json.dumps({"warehouse": f"file://{tmp_path}/w"}))
    assert open_warehouse(tmp_path).location == str(tmp_path / "w")
    plan = f"file://{tmp_path}/plan"
    assert command.run("plan", "-o", plan, "--as-of", NOW).exit_code == 0
    assert (tmp_path / "plan").exists()
    applied = command.json("apply", plan, "--yes", "--allow-future")
    assert applied["streams"][0]["removed_messages"] > 0
    config = ("--config", f"file://{tmp_path}/w/retention.yaml", "--engine", "local")
    report = f"file://{tmp_path}/report.json"
    run_job("retain", tmp_path, *config, "--report-file", report)
    assert (tmp_path / "report.json").exists()


def test_both_ways_to_spell_an_object_store_are_known() -> None:
    assert spellings(place_of("s3a://b/x")) == ("s3://b/x", "s3a://b/x")
    assert spellings("/x") == ("/x",)
