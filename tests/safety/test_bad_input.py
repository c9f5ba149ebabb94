"""Bad input gives one sentence with an exit code, and the warehouse is unchanged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import Result

from retention.core.units import format_instant
from retention.formats.nats.backup import RAW_ROWS, write_backup
from tests.support.sandboxes import NOW, Commands, commands
from tests.support.trees import overwrite, scramble, tree

LIMITS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 20, "max_msg_size": 1000}
NOT_THE_TABLE = (".lease", "moves.lock")
MESSAGES = ("messages", "ORDERS", "--format", "jsonl")
APPLY = ("apply", "--yes", "ORDERS")
SEGMENT_CUT = 1
"""The second of three segments: 16 of its 24 messages are removed, so it is read and copied."""


def noisy(count: int) -> str:
    """Incompressible messages an hour apart, in segments of a day."""
    random = np.random.default_rng(3)
    start = NOW - 1_000 * 24 * 3_600_000_000_000
    return "\n".join(
        json.dumps(
            {
                "subject": f"orders.{number % 5}",
                "data": random.bytes(200).hex(),
                "ts_ns": start + number * 3_600_000_000_000,
            }
        )
        for number in range(count)
    )


@pytest.fixture(scope="module", params=["delta", "parquet"])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with 60 messages in three segments, for copies."""
    folder = tmp_path_factory.mktemp(str(request.param))
    command = commands(folder, LIMITS, format=request.param)
    command.json("publish", "ORDERS", "-", stdin=noisy(60))
    return folder


@pytest.fixture
def orders(published: Path, tmp_path: Path) -> Commands:
    shutil.copytree(published, tmp_path / "warehouse")
    return Commands(tmp_path / "warehouse")


def flip(file: Path, place: float) -> None:
    """Flip one bit, at a share of the file's length, and keep its modification time."""
    content = bytearray(file.read_bytes())
    content[int(len(content) * place)] ^= 0x10
    overwrite(file, bytes(content))


def table_of(command: Commands) -> dict[str, str]:
    """All files below `streams/`, except leases."""
    streams = command.folder / "streams"
    return {name: sha for name, sha in tree(streams).items() if not name.endswith(NOT_THE_TABLE)}


def segments(command: Commands) -> list[Path]:
    files = (command.folder / "streams/ORDERS/messages").rglob("segment=*/*.parquet")
    return sorted(files, key=lambda file: int(file.parent.name.partition("=")[2]))


def check_refusal(result: Result, code: int, *fragments: str) -> None:
    """Check that one line has the error with the fragments, without a traceback.

    The progress of each stream is a separate line without a reason.
    """
    said = [line for line in result.stderr.splitlines() if ": failed (" not in line]
    assert result.exit_code == code, result.output
    assert len(said) == 1, said
    assert all(fragment in said[0] for fragment in fragments), said[0]


def check_refused(
    command: Commands,
    arguments: tuple[object, ...],
    code: int,
    *fragments: str,
    stdin: str | None = None,
) -> None:
    """Check that the command is refused, and the table is unchanged."""
    before = table_of(command)
    check_refusal(command.run(*arguments, stdin=stdin), code, *fragments)
    assert table_of(command) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "NOPE"),
        ("plan", "--estimate", "NOPE"),
        ("apply", "--yes", "NOPE"),
        ("explain", "NOPE", 1),
        ("messages", "NOPE"),
        ("state", "NOPE"),
        ("history", "NOPE"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_an_unknown_stream_is_named(orders: Commands, arguments: tuple[object, ...]) -> None:
    check_refused(orders, arguments, 2, "NOPE")


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(orders: Commands) -> None:
    check_refused(orders, ("plan", "ORDER"), 2, "did you mean ORDERS?")


def archive(folder: Path, messages: int = 40, **said: int) -> Path:
    rows = pa.table(
        {
            "seq": range(1, messages + 1),
            "subject": ["old.a"] * messages,
            "ts_ns": range(messages),
            "headers": pa.nulls(messages, pa.binary()),
            "payload": [b"x" * 100] * messages,
        }
    ).cast(RAW_ROWS)
    state = {
        "messages": messages,
        "bytes": messages * (30 + 5 + 100),
        "first_seq": 1,
        "last_seq": messages,
    }
    path = folder / "OLD.backup"
    write_backup(path, {**state, **said}, {}, [rows])
    return path


def cut(path: Path, share: float) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


def flipped(path: Path) -> Path:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path


def text(folder: Path) -> Path:
    path = folder / "OLD.backup"
    path.write_text("no archive at all\n" * 100, encoding="utf-8")
    return path


ARCHIVES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no archive": (text, "OLD.backup"),
    "an empty file": (lambda folder: cut(archive(folder), 0), "OLD.backup"),
    "cut in half": (lambda folder: cut(archive(folder), 0.5), "OLD.backup"),
    "cut before its end mark": (lambda folder: cut(archive(folder), 0.99), "OLD.backup"),
    "a flipped bit": (lambda folder: flipped(archive(folder)), "OLD.backup"),
    "a count above its sequences": (
        lambda folder: archive(folder, messages=40, last_seq=39),
        "says 40 messages in sequences 1 to 39",
    ),
    "messages before its first": (
        lambda folder: archive(folder, first_seq=2, last_seq=41),
        "first_seq is 2 in state.json and 1 in the archive",
    ),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_backup_that_is_not_whole_leaves_no_stream(orders: Commands, kind: str) -> None:
    make, fragment = ARCHIVES[kind]
    path = make(orders.folder)
    check_refusal(orders.run("import", "nats-backup", path, "--stream", "OLD"), 6, fragment)
    assert [one["messages"] for one in orders.json("state") if one["stream"] == "OLD"] in ([], [0])
    assert list((orders.folder / "streams/OLD").rglob("segment=*/*.parquet")) == []
    whole = archive(orders.folder)
    orders.json("import", "nats-backup", whole, "--stream", "OLD")
    assert orders.json("state", "OLD")[0]["messages"] == 40


def test_a_backup_that_is_not_there_is_a_usage_error(orders: Commands) -> None:
    check_refused(orders, ("import", "nats-backup", "missing"), 2, "missing")


def test_a_backup_into_a_stream_that_holds_something_else_is_refused(orders: Commands) -> None:
    path = archive(orders.folder)
    check_refused(orders, ("import", "nats-backup", path, "--stream", "ORDERS"), 4, "ORDERS")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"data": "no subject"}', 2),
        ('{"subject": "", "data": "x"}', 2),
        ('{"subject": "orders..x", "data": "x"}', 2),
        ('{"subject": "orders. x", "data": "x"}', 2),
        ('{"subject": "orders.*", "data": "x"}', 2),
        ('{"subject": "orders.x", "data": "%s"}' % ("x" * 1_001), 4),
        ('{"subject": "elsewhere", "data": "x"}', 4),
        ('{"subject": "orders.x", "data_b64": "%%%"}', 2),
        ('{"subject": "orders.x", "data": ', 2),
        ('{"subject": "orders.x", "headers": {"Nats-TTL": "1d"}}', 4),
        ('{"subject": "orders.x", "headers": {"Nats-TTL": "5s"}}', 4),
        ('{"subject": "orders.x", "headers": {"Nats-Rollup": "sub"}}', 4),
        ('{"subject": "orders.x", "headers": {"a:b": "c"}}', 2),
        ('{"subject": "orders.x", "headers": [["", "c"]]}', 2),
        ('{"subject": "orders.x", "headers": {"a": "b\\r\\nNats-TTL: 5"}}', 2),
    ],
)
def test_one_wrong_line_is_named_and_keeps_the_whole_batch_out(
    orders: Commands, line: str, code: int
) -> None:
    good = '{"subject": "orders.x", "data": "x"}'
    lines = "\n".join([good, good, line, good])
    check_refused(orders, ("publish", "ORDERS", "-"), code, "line 3", stdin=lines)


@pytest.mark.parametrize("instant", ["yesterday", "2026-13-01T00:00:00Z", "12.5", ""])
@pytest.mark.parametrize("command", ["plan", "apply"])
def test_an_instant_that_cannot_be_read_is_a_usage_error(
    orders: Commands, command: str, instant: str
) -> None:
    yes = ("--yes",) if command == "apply" else ()
    check_refused(orders, (command, *yes, "ORDERS", "--as-of", instant), 2, instant)


def test_an_instant_in_the_future_needs_to_be_allowed(orders: Commands) -> None:
    later = format_instant(NOW * 2)
    check_refused(orders, (*APPLY, "--as-of", later), 4, "--allow-future", later)
    assert orders.json(*APPLY, "--as-of", later, "--allow-future")


def test_an_instant_before_the_last_applied_one_needs_to_be_allowed(orders: Commands) -> None:
    first, earlier = NOW // 2, NOW // 2 - 1
    orders.json(*APPLY, "--as-of", first)
    check_refused(
        orders, (*APPLY, "--as-of", earlier), 4, "--allow-rewind", format_instant(earlier)
    )
    assert orders.json(*APPLY, "--as-of", earlier, "--allow-rewind")


def test_a_message_that_is_not_there_cannot_be_explained(orders: Commands) -> None:
    check_refused(orders, ("explain", "ORDERS", 61), 2, "61")


@pytest.mark.parametrize("command", [("plan", "ORDERS"), APPLY], ids=["plan", "apply"])
def test_a_data_file_cut_in_half_is_damaged(orders: Commands, command: tuple[str, ...]) -> None:
    file = segments(orders)[SEGMENT_CUT]
    overwrite(file, file.read_bytes()[: file.stat().st_size // 2])
    check_refused(orders, command, 6, file.name)


def test_a_data_file_of_random_bytes_is_damaged(orders: Commands) -> None:
    file = segments(orders)[SEGMENT_CUT]
    scramble(file, np.random.default_rng(5))
    check_refused(orders, APPLY, 6, file.name)


def test_a_data_file_that_is_gone_is_damaged(orders: Commands) -> None:
    file = segments(orders)[SEGMENT_CUT]
    file.unlink()
    check_refused(orders, APPLY, 6, file.name)


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7])
def test_a_bit_of_a_payload_flipped_after_the_commit_is_not_copied(
    orders: Commands, place: float
) -> None:
    flip(segments(orders)[SEGMENT_CUT], place)
    check_refused(orders, APPLY, 6, segments(orders)[SEGMENT_CUT].name)


def test_wherever_a_bit_flips_what_stays_is_exact_or_nothing_happens(
    orders: Commands, tmp_path: Path
) -> None:
    codes = []
    intact = Commands(shutil.copytree(orders.folder, tmp_path / "intact"))
    intact.json(*APPLY)
    for number, place in enumerate(np.linspace(0, 0.9999, 15)):
        copy = Commands(shutil.copytree(orders.folder, tmp_path / str(number)))
        flip(segments(copy)[SEGMENT_CUT], float(place))
        before = table_of(copy)
        done = copy.run(*APPLY)
        codes.append(done.exit_code)
        if done.exit_code == 0:
            assert copy.run(*MESSAGES).stdout == intact.run(*MESSAGES).stdout
        else:
            assert (done.exit_code, table_of(copy)) == (6, before), done.stderr
            assert len(done.stderr.splitlines()) == 2, done.stderr
    assert codes.count(6) > 9


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "ORDERS"),
        APPLY,
        ("state", "ORDERS"),
        ("messages", "ORDERS"),
        ("explain", "ORDERS", 1),
        ("publish", "ORDERS", "-"),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_table_of_a_newer_format_version_is_left_alone(
    orders: Commands, arguments: tuple[object, ...]
) -> None:
    said = orders.folder / "streams/ORDERS/_retention/format.json"
    content = json.loads(said.read_text(encoding="utf-8"))
    said.write_text(json.dumps({**content, "format_version": 99}), encoding="utf-8")
    check_refused(orders, arguments, 4, "version 99", stdin='{"subject": "orders.x"}')


def test_a_plan_of_a_newer_format_version_is_left_alone(orders: Commands) -> None:
    saved = orders.folder / "saved.plan"
    orders.run("plan", "ORDERS", "-o", saved)
    content = json.loads(saved.read_text(encoding="utf-8"))
    saved.write_text(json.dumps({**content, "format_version": 99}), encoding="utf-8")
    check_refused(orders, ("apply", "--yes", saved), 4, "format 99")


def test_a_table_of_the_other_format_is_left_alone(orders: Commands) -> None:
    config = orders.folder / "retention.yaml"
    text = config.read_text(encoding="utf-8")
    other = {"delta": "parquet", "parquet": "delta"}
    is_delta = '"format": "delta"' in text
    wanted = other["delta" if is_delta else "parquet"]
    config.write_text(
        text.replace(f'"format": "{other[wanted]}"', f'"format": "{wanted}"'), encoding="utf-8"
    )
    check_refused(orders, APPLY, 4, f"format: {wanted}")
