"""No output contains terminal control characters or the credentials of a location."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.core.outcomes import Outcome, sentence_of
from retention.errors import UsageError
from retention.errors.printable import has_credentials, redacted, visible, visible_json
from tests.support.command_line import invoke
from tests.support.sandboxes import ORDERS, Commands, commands

NAME = "orders.\x1b[31m\x07\x7f\u009b\u202e\u2066\u200f\u061c\u2028x"
RAW = set("\x1b\x07\x7f\u009b\u202e\u2066\u200f\u061c\u2028")
SEEN = r"orders.\x1b[31m\x07\x7f\x9b\u202e\u2066\u200f\u061c\u2028x"


@pytest.fixture
def hostile(tmp_path: Path) -> Commands:
    rules = ORDERS | {"max_msgs_per_subject": 1, "retention": "interest"}
    command = commands(tmp_path / "w", rules, {"name": "KV_b", "subjects": ["$KV.b.>"]})
    line = json.dumps({"subject": NAME, "data": NAME, "headers": [["a", "b"]]})
    command.json("publish", "ORDERS", stdin=f"{line}\n{line}")
    command.json("publish", "KV_b", stdin=json.dumps({"subject": f"$KV.b.{NAME}"}))
    return command


@pytest.mark.parametrize(
    "words",
    [
        ("messages", "ORDERS"),
        ("messages", "KV_b"),
        ("explain", "ORDERS", 1),
        ("plan", "ORDERS"),
        ("state", NAME),
        ("consumer", "add", "ORDERS", "b", "--filter", NAME),
        ("consumer", "info", "ORDERS", NAME),
        ("purge", "ORDERS", "--subject", NAME, "--dry-run"),
    ],
    ids=lambda words: " ".join(map(str, words[:1])),
)
@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_no_command_prints_what_steers_a_terminal(
    hostile: Commands, words: tuple[object, ...], form: str
) -> None:
    done = hostile.run("--format", form, *words)
    assert done.exit_code != 1, done.output
    assert not RAW & set(done.output), done.output
    if form == "table" and words[0] in {"messages", "explain", "state"}:
        assert SEEN in done.output
    for line in done.stdout.splitlines() if form == "jsonl" else ():
        json.loads(line)


def test_json_keeps_the_values(hostile: Commands) -> None:
    [first, _] = hostile.run("--format", "jsonl", "messages", "ORDERS").stdout.splitlines()
    assert json.loads(first)["subject"] == NAME
    assert json.loads(visible_json(json.dumps({NAME: NAME}, ensure_ascii=False))) == {NAME: NAME}


def test_no_representation_shows_what_steers_a_terminal(hostile: Commands) -> None:
    stream = open_warehouse(hostile.folder / "retention.yaml").stream("ORDERS")
    shown: list[Any] = [
        stream.explain(1),
        stream.explain(2),
        stream.latest(),
        stream.plan(),
        stream.state(),
    ]
    for one in shown:
        assert not RAW & set(repr(one)), repr(one)
        assert not RAW & set(one._repr_html_())
    assert SEEN in repr(shown[0])
    assert SEEN in shown[0]._repr_html_()


def test_letters_of_all_scripts_stay() -> None:
    text = "Größe שלום 日本 🚀 👩‍💻 tab"
    assert visible(text) == text
    assert visible("a\tb\nc") == r"a\x09b\x0ac"


LOCATIONS = {
    "s3://AKIA:s/ec+ret@bucket/x": "s3://***@bucket/x",
    "s3://AKIA@bucket/x": "s3://***@bucket/x",
    "s3://bucket/x?secret_key=s3cret&region=eu": "s3://bucket/x?secret_key=***&region=eu",
    "https://user:s3cret@host:9000/x": "https://***@host:9000/x",
    "https://h/x?X-Amz-Signature=s3cret": "https://h/x?X-Amz-Signature=***",
}


@pytest.mark.parametrize("location", LOCATIONS)
def test_credentials_of_a_location_are_not_shown(location: str) -> None:
    assert redacted(f"cannot open '{location}': no") == f"cannot open '{LOCATIONS[location]}': no"
    assert sentence_of(KeyError(location)).count("ret") == location.count("secret")
    told = Outcome("ORDERS", error=OSError(5, "broken", location)).sentence
    assert LOCATIONS[location] in told
    assert str(UsageError(location)) == LOCATIONS[location]


@pytest.mark.parametrize(
    "location",
    ["s3://bucket/a@b/c:d@e", "http://host:9000/a@b", "/home/a:b@c", "s3://bucket:9000/x"],
)
def test_a_location_without_credentials_is_shown_as_it_is(location: str) -> None:
    assert redacted(location) == location
    assert not has_credentials(location)


@pytest.mark.parametrize(
    "location", ["s3://AKIA:s/ec+ret@bucket/x", "s3://b/x?secret_key=s/ec+ret"]
)
def test_a_location_that_names_credentials_is_refused_without_them(
    tmp_path: Path, location: str
) -> None:
    command = commands(tmp_path, ORDERS)
    for words in (
        ("--warehouse", location, "state"),
        ("--format", "json", "--warehouse", location, "plan"),
        ("--config", str(tmp_path / "retention.yaml"), "apply", "--yes", location),
        ("--config", str(tmp_path / "retention.yaml"), "restore", "ORDERS", "--from", location),
    ):
        done = invoke(words)
        assert done.exit_code == 2, done.output
        assert "s/ec+ret" not in done.output
        assert "must not contain credentials" in done.output
    file = command.folder / "retention.yaml"
    file.write_text(json.dumps({"warehouse": location}))
    done = command.run("--debug", "validate")
    assert done.exit_code == 2
    assert "s/ec+ret" not in done.output
    assert f"{file}:1: warehouse" in done.output


@pytest.mark.parametrize(
    ("line", "beginning", "count"),
    [
        ({"subject": "a" * 2_000_000}, "line 1: ", "2,000,0"),
        ({"x" * 2_000_000: 1}, "line 1: unknown key xxx", "2,000,0"),
        ({"subject": "a b " * 500_000}, "line 1: ", " characters) "),
    ],
)
def test_a_sentence_repeats_the_ends_of_a_long_value(
    tmp_path: Path, line: dict[str, Any], beginning: str, count: str
) -> None:
    command = commands(tmp_path, ORDERS)
    done = command.run("publish", "ORDERS", stdin=json.dumps(line))
    assert done.exit_code == 2
    assert len(done.stderr) < 10_000
    assert done.stderr.startswith(beginning)
    assert count in done.stderr
    assert done.stderr.endswith("again\n")


@pytest.mark.parametrize("fill", ["a.b-", "k:", "://", "x "])
def test_a_long_value_is_shortened_at_once(fill: str) -> None:
    begun = time.process_time()
    said = str(UsageError(f"s3://key:secret@bucket/{fill * 1_000_000} s3://b/x?token=secret: no"))
    assert time.process_time() - begun < 2
    assert "secret" not in said
    assert said.startswith("s3://***@bucket/")
    assert said.endswith(" s3://b/x?token=*** no")


@pytest.mark.parametrize("at", [500, 740, 755, 760, 764, 767, 800, 19_000])
def test_no_part_of_credentials_is_left_at_a_cut(at: int) -> None:
    word = f"{'y' * at}'s3://key:secret@bucket/{'z' * 20_000}"
    assert "sec" not in str(UsageError(word))
    assert "ret@" not in str(UsageError(word[::-1] + word[at:][:280]))
