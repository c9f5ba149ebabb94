"""Every remedy in a sentence of exit codes 4 and 6 works: executed as written, a pass and a publish continue."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType
from typer.testing import Result

from retention.api.warehouse import open_warehouse
from tests.contract.streams import foreign_rows, rows
from tests.support.iggy_logs import Message, log_09, written
from tests.support.sandboxes import Commands, commands, lines

ORDERS = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "max_msgs": 5,
    "segment_span": "5h",
    "archive": "./archive",
}
WORK = {
    "name": "WORK",
    "subjects": ["work.>"],
    "retention": "interest",
    "max_msgs": 2,
    "duplicate_window": "1h",
}
CLICKS = {"name": "clicks", "partitions": 1, "message_expiry": "1d"}
COMMAND = re.compile(r"`retention ([^`]+)`")
MESSAGE = {
    "ORDERS": '{"subject": "orders.new"}',
    "WORK": '{"subject": "work.new"}',
    "clicks": '{"data": "x"}',
}


def configured(folder: Path, format_: str, **changed: Any) -> Commands:
    """Two streams and a topic; `changed` are settings of ORDERS."""
    command = commands(folder, {**ORDERS, **changed}, WORK, format=format_)
    file = folder / "retention.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"topics": [CLICKS]}))
    return command


@pytest.fixture(scope="module", params=["delta", "parquet"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with messages, a consumer, stored offsets and an archive, after a pass."""
    folder = tmp_path_factory.mktemp(str(request.param))
    command = configured(folder, str(request.param))
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    ids = [
        json.dumps({"subject": "work.old", "headers": {"Nats-Msg-Id": f"id-{n}"}}) for n in range(4)
    ]
    command.json("publish", "WORK", "-", stdin="\n".join(ids))
    command.json("consumer", "add", "WORK", "billing", "--filter", "work.new")
    command.json("publish", "clicks", "-", stdin="\n".join([MESSAGE["clicks"]] * 4))
    command.json("offset", "store", "clicks", "0", "readers", "2")
    command.json("apply", "--yes")
    if request.param == "delta":
        opened_table(command).create_checkpoint()
    command.json("publish", "ORDERS", "-", stdin=MESSAGE["ORDERS"])
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Commands:
    """A copy of that warehouse, for damage."""
    shutil.copytree(made, tmp_path / "lake")
    return Commands(tmp_path / "lake")


def next_seq(command: Commands, stream: str) -> int:
    """The sequence of the next message of a stream."""
    done = command.run("--format", "jsonl", "publish", stream, "-", stdin=MESSAGE[stream])
    assert done.exit_code == 0, done.output
    ack = json.loads(done.stdout)
    return int(ack["seq"] if "seq" in ack else ack["offset"])


def goes_on(command: Commands, stream: str, last_seq: int) -> None:
    """Assert that a pass and a publish succeed, and no sequence is assigned twice."""
    passed = command.run("apply", stream, "--yes")
    assert passed.exit_code == 0, passed.output
    assert next_seq(command, stream) > last_seq
    passed = command.run("apply", stream, "--yes")
    assert passed.exit_code == 0, passed.output


def told(done: Result) -> str:
    """The sentence of a refused command."""
    assert done.exit_code in {4, 6}, done.output
    return done.stderr + done.stdout


def run_as_told(command: Commands, sentence: str, verb: str) -> Result:
    """Run the command in a sentence verbatim."""
    *_, text = [text for text in COMMAND.findall(sentence) if text.startswith(verb)]
    done = command.run(*shlex.split(text))
    assert done.exit_code == 0, done.output
    return done


@dataclass(frozen=True)
class Harm:
    """Damage of a file or directory, the command that refuses then, and the remedies in its sentence."""

    stream: str
    place: str
    """A pattern below the warehouse; the last match is damaged."""
    ask: tuple[str, ...]
    ways: tuple[str, ...] = ("restore",)
    damage: str = "junk"
    formats: tuple[str, ...] = ("delta",)
    stdin: str | None = None


LAST = {"ORDERS": 13, "WORK": 4, "clicks": 3}
RUNS = "runs/ORDERS/*.done.json"
DATA = "streams/ORDERS/messages/partition=0/segment=11/*.parquet"
LOG = "streams/ORDERS/_retention/log"
DELTA_LOG = "streams/ORDERS/messages/_delta_log"
DELTA, PARQUET = ("delta",), ("parquet",)
STATE = ("state", "ORDERS")
ANEW = ("restore", "begin anew")
HARMS = {
    "a data file that is gone": Harm(
        "ORDERS", DATA, ("messages", "ORDERS"), ("restore", "give up"), "gone", (*DELTA, *PARQUET)
    ),
    "a data file of other bytes": Harm(
        "ORDERS", DATA, ("messages", "ORDERS"), ("restore", "give up"), formats=(*DELTA, *PARQUET)
    ),
    "an entry of Delta's log": Harm("ORDERS", f"{DELTA_LOG}/0*.json", STATE),
    "a checkpoint of Delta's log": Harm(
        "ORDERS", f"{DELTA_LOG}/*.checkpoint.parquet", STATE, ("delete what is spent",)
    ),
    "an empty entry of Delta's log": Harm("ORDERS", f"{DELTA_LOG}/0*.json", STATE, damage="empty"),
    "Delta's log": Harm("ORDERS", DELTA_LOG, STATE, ANEW, "gone"),
    "an entry of the Parquet log": Harm("ORDERS", f"{LOG}/0*.json", STATE, formats=PARQUET),
    "the Parquet log": Harm("ORDERS", LOG, STATE, ANEW, "gone", PARQUET),
    "the format's record": Harm(
        "ORDERS", "streams/ORDERS/_retention/format.json", STATE, ("restore", "delete")
    ),
    "a run's record": Harm(
        "ORDERS", "runs/ORDERS/*.done.json", ("history", "ORDERS"), ("restore", "delete")
    ),
    "a consumer's record": Harm(
        "WORK", "streams/WORK/consumers/billing/*.json", ("consumer", "ls", "WORK"), formats=PARQUET
    ),
    "all records of consumers": Harm(
        *("WORK", "streams/WORK/consumers", ("apply", "WORK", "--yes")),
        *(("restore", "add anew"), "gone", PARQUET),
    ),
    "stored offsets": Harm(
        "clicks", "streams/clicks/offsets/*.json", ("apply", "clicks", "--yes"), formats=PARQUET
    ),
    "all stored offsets": Harm(
        *("clicks", "streams/clicks/offsets", ("apply", "clicks", "--yes")),
        *(("restore", "store anew"), "gone", PARQUET),
    ),
    "a topic's settings": Harm(
        "clicks", "streams/clicks/_retention/topic.json", ("state", "clicks"), ("restore", "delete")
    ),
    "ids that are kept": Harm(
        *("WORK", "streams/WORK/_retention/ids/*", ("publish", "WORK", "-"), ("restore", "delete")),
        stdin='{"subject": "work.new", "headers": {"Nats-Msg-Id": "id-9"}}',
    ),
    "an archive's manifest": Harm(
        *("ORDERS", "archive/ORDERS/*/manifests/*", ("restore", "ORDERS")),
        *(("restore", "leave out"), "junk", PARQUET),
    ),
    "an archive's copy": Harm(
        "ORDERS",
        "archive/ORDERS/*/messages/*/*/*.parquet",
        ("restore", "ORDERS"),
        formats=PARQUET,
    ),
}


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name, harm in HARMS.items() for way in harm.ways]
)
def test_a_file_that_cannot_be_read_is_restored_or_given_up_as_told(
    copied: Commands, made: Path, name: str, way: str
) -> None:
    harm = HARMS[name]
    if json.loads((made / "retention.yaml").read_text())["defaults"]["format"] not in harm.formats:
        pytest.skip("of the other format")
    place = sorted(copied.folder.glob(harm.place))[-1]
    DAMAGES[harm.damage](place)
    sentence = told(copied.run(*harm.ask, stdin=harm.stdin))
    named = place.parents[1] if name == "an entry of Delta's log" else place
    assert str(named) in sentence
    WAYS[way](copied, harm.stream, place, made, sentence)
    done = copied.run(*harm.ask, stdin=harm.stdin)
    # An archive without its last manifest is invalid.
    assert done.exit_code == 0 or way == "leave out", done.output
    # The run history has the sequences up to its last run.
    known = 12 if way == "begin anew" else LAST[harm.stream]
    goes_on(copied, harm.stream, known)


def junk(place: Path) -> None:
    place.write_bytes(b"x" * place.stat().st_size)


def gone(place: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "junk": junk,
    "gone": gone,
    "empty": lambda place: place.write_bytes(b""),
}


def restored(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del stream
    assert re.search(r"restore .*from a copy", sentence), sentence
    source = made / place.relative_to(command.folder)
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, place)


def deleted(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del command, stream, made
    assert re.search(r"or (delete|remove) it", sentence), sentence
    place.unlink()


def left_out(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del command, stream, made
    assert "or leave it out" in sentence
    place.unlink()


def begun_anew(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del stream, place, made
    [root] = re.findall(r"or move (\S+) away to begin anew", sentence)
    shutil.move(root, command.folder / "aside")


def added_anew(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del place, made
    assert "create the consumers again" in sentence
    done = command.run("consumer", "add", stream, "billing")
    assert done.exit_code == 0, done.output


def stored_anew(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del place, made
    assert "or store an offset again" in sentence
    done = command.run("offset", "store", stream, "0", "readers", "2")
    assert done.exit_code == 0, done.output


def gave_up(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del place, made
    assert "or give up what it held" in sentence
    assert "removed 1 file from the table" in run_as_told(command, sentence, "repair lost").output
    [repair] = [run for run in command.json("history", stream) if run["kind"] == "repair"]
    assert repair["removed_messages"] in {1, 2}


def deleted_spent(command: Commands, stream: str, place: Path, made: Path, sentence: str) -> None:
    del command, stream, place, made
    [named] = re.findall(r"nothing was changed; delete (.+)\n", sentence)
    for path in named.split(" and "):
        Path(path).unlink()


WAYS = {
    "delete what is spent": deleted_spent,
    "give up": gave_up,
    "restore": restored,
    "delete": deleted,
    "leave out": left_out,
    "begin anew": begun_anew,
    "add anew": added_anew,
    "store anew": stored_anew,
}


def opened_table(command: Commands, stream: str = "ORDERS") -> DeltaTable:
    return DeltaTable(command.folder / "streams" / stream / "messages")


def put(command: Commands, rows: pa.Table) -> None:
    """Append rows like another writer."""
    table = opened_table(command)
    write_deltalake(table, rows, mode="append")


def put_without_size(command: Commands) -> None:
    """Append a row without a size, to a table whose owner allows this."""
    log = command.folder / "streams/ORDERS/messages/_delta_log"
    for entry in log.glob("*.json"):
        text = entry.read_text().replace('\\"nullable\\":false', '\\"nullable\\":true')
        entry.write_text(text)
    row = foreign_rows([13], 11, size=[None])
    fields = [field.with_nullable(nullable=True) for field in row.schema]
    put(command, pa.Table.from_pylist(row.to_pylist(), schema=pa.schema(fields)))


FOREIGN: dict[str, Callable[[Commands], object]] = {
    "sequences of another segment": lambda command: put(command, foreign_rows([3], 13)),
    "a sequence twice": lambda command: put(command, foreign_rows([12], 11)),
    "another partition": lambda command: put(
        command,
        foreign_rows([13], 11).set_column(0, "partition", pa.array([5], pa.int32())),
    ),
    "rows without a size": put_without_size,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_taken_out_of_a_delta_table_as_told(tmp_path: Path, name: str) -> None:
    command = configured(tmp_path, "delta")
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    FOREIGN[name](command)
    sentence = told(command.run("apply", "ORDERS", "--yes"))
    run_as_told(command, sentence, "repair lost")
    goes_on(command, "ORDERS", 12)


def test_impossible_numbers_are_repaired_as_told(tmp_path: Path) -> None:
    command = configured(tmp_path, "delta")
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    put(command, foreign_rows([2**62 + 1], 13, ts_ns=[1], time=[1]))
    sentence = told(command.run("apply", "ORDERS", "--yes"))
    run_as_told(command, sentence, "repair sequences")
    goes_on(command, "ORDERS", 12)


def test_a_foreign_file_is_moved_aside_as_told(tmp_path: Path) -> None:
    command = configured(tmp_path, "parquet")
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    place = command.folder / "streams/ORDERS/messages/partition=0/segment=5000"
    place.mkdir()
    pq.write_table(rows([4]), place / "mirror.parquet")
    sentence = told(command.run("apply", "ORDERS", "--yes"))
    run_as_told(command, sentence, "repair foreign")
    goes_on(command, "ORDERS", 12)


PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.setTransactionRetentionDuration": "interval 1 days",
    "delta.enableChangeDataFeed": "true",
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_of_the_table_is_unset_as_told(tmp_path: Path, name: str) -> None:
    command = configured(tmp_path, "delta", quiet=True)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    opened_table(command).alter.set_table_properties({name: PROPERTIES[name]})
    sentence = told(command.run("apply", "ORDERS", "--yes"))
    assert name in sentence
    assert "unset" in sentence
    unset(command, name)
    goes_on(command, "ORDERS", 12)


def unset(command: Commands, name: str) -> None:
    """Spark's ALTER TABLE … UNSET TBLPROPERTIES: write the metadata without the property."""
    table = opened_table(command)
    log = command.folder / "streams/ORDERS/messages/_delta_log"
    metadata = [
        json.loads(line)["metaData"]
        for entry in sorted(log.glob("*.json"))
        for line in entry.read_text().splitlines()
        if "metaData" in line
    ][-1]
    del metadata["configuration"][name]
    info = {"timestamp": 1, "operation": "UNSET TBLPROPERTIES", "engineInfo": "Apache-Spark/4.0.0"}
    entry = [{"commitInfo": info}, {"metaData": metadata}]
    text = "\n".join(map(json.dumps, entry))
    (log / f"{table.version() + 1:020d}.json").write_text(text)


def test_a_stream_that_is_not_quiet_beside_a_change_feed_goes_on_as_told(tmp_path: Path) -> None:
    command = configured(tmp_path, "delta", quiet=True)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    opened_table(command).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert "set quiet: false" in told(command.run("apply", "ORDERS", "--yes"))
    goes_on(configured(tmp_path, "delta", quiet=False), "ORDERS", 12)


def laid(folder: Path, format_: str = "delta", **changed: Any) -> Commands:
    """The same, with twelve messages in ORDERS."""
    command = configured(folder, format_, **changed)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    return command


def test_constraints_of_a_table_are_dropped_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    opened_table(command).alter.add_constraint({"sized": "size >= 0"})
    refused = command.run("publish", "ORDERS", "-", stdin=MESSAGE["ORDERS"])
    assert told(refused).endswith("drop them first\n")
    opened_table(command).alter.drop_constraint("sized")
    goes_on(command, "ORDERS", 12)


def test_columns_of_others_leave_a_table_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    opened_table(command).alter.add_columns([Field("note", PrimitiveType("string"))])
    sentence = told(command.run("apply", "ORDERS", "--yes"))
    assert "overwrite the table without them, and its schema, too" in sentence
    table = opened_table(command)
    messages = table.to_pyarrow_table().drop_columns(["note"])
    parts = ["partition", "segment"]
    write_deltalake(table, messages, mode="overwrite", schema_mode="overwrite", partition_by=parts)
    goes_on(command, "ORDERS", 12)


def test_rows_of_a_table_with_a_strange_feature_are_copied_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    rows_ = opened_table(command).to_pyarrow_table().select(["subject", "payload", "ts_ns"])
    opened_table(command).alter.add_feature(
        TableFeatures.ColumnMapping, allow_protocol_versions_increase=True
    )
    assert "copy the rows into a new stream" in told(command.run("apply", "ORDERS", "--yes"))
    wanted = {"name": "ORDERS_2", "subjects": ["orders.>"], "max_msgs": 5}
    other = commands(tmp_path, wanted, format="delta")
    new = open_warehouse(tmp_path / "retention.yaml").new_stream("ORDERS_2")
    assert new.append(rows_).messages == 12
    MESSAGE["ORDERS_2"] = MESSAGE["ORDERS"]
    goes_on(other, "ORDERS_2", 12)


FLAGS = {
    "--allow-future": ("later than the clock", ("--as-of", "2100-01-01T00:00:00Z")),
    "--allow-rewind": ("earlier than the last applied one", ("--as-of", "2020-01-01T00:00:00Z")),
    "--allow-large": ("(guards)", ()),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_a_guard_is_lifted_as_told(tmp_path: Path, flag: str) -> None:
    command = laid(tmp_path, guards={"max_removed_share": "50%"})
    if flag == "--allow-rewind":
        assert laid(tmp_path / "other").run("apply", "ORDERS", "--yes").exit_code == 0
        command = Commands(tmp_path / "other")
    why, words = FLAGS[flag]
    asked = ("apply", "ORDERS", "--yes", *words)
    sentence = told(command.run(*asked))
    assert why in sentence
    assert flag in sentence
    large = ["--allow-large"] if flag == "--allow-future" else []
    assert command.run(*asked, flag, *large).exit_code == 0
    if flag == "--allow-future":
        sentence = told(command.run("apply", "ORDERS", "--yes"))
        run_as_told(command, sentence, "repair clock")
    goes_on(command, "ORDERS", 12)


def test_a_guard_is_given_another_limit_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path, guards={"min_kept_messages": 6})
    sentence = told(command.run("apply", "ORDERS", "--yes"))
    run_as_told(command, sentence, "plan ")
    assert "write another limit" in sentence
    goes_on(configured(tmp_path, "delta", guards={"min_kept_messages": 5}), "ORDERS", 12)


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another retention": ({"retention": "workqueue"}, {}, "write retention: workqueue again"),
    "no more TTLs": ({"allow_msg_ttl": True}, {}, "write allow_msg_ttl: true again"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_setting_is_put_back_as_told(tmp_path: Path, name: str) -> None:
    before, after, remedy = CHANGED[name]
    command = laid(tmp_path, **before)
    assert command.run("apply", "ORDERS", "--yes").exit_code == 0
    sentence = told(configured(tmp_path, "delta", **after).run("apply", "ORDERS", "--yes"))
    assert remedy in sentence
    goes_on(configured(tmp_path, "delta", **before), "ORDERS", 12)


def test_the_format_that_a_stream_has_is_said_as_told(tmp_path: Path) -> None:
    laid(tmp_path, "parquet")
    sentence = told(configured(tmp_path, "delta").run("apply", "ORDERS", "--yes"))
    assert "say format: parquet" in sentence
    goes_on(configured(tmp_path, "parquet"), "ORDERS", 12)


def test_limits_of_consumers_are_raised_as_told(tmp_path: Path) -> None:
    billing = {"durable_name": "billing", "ack_policy": "explicit", "max_ack_pending": 500}
    command = laid(tmp_path, consumers=[billing])
    assert command.run("apply", "ORDERS", "--yes").exit_code == 0
    low = configured(tmp_path, "delta", consumer_limits={"max_ack_pending": 10})
    assert "raise max_ack_pending of consumer_limits" in told(low.run("apply", "ORDERS", "--yes"))
    high = configured(tmp_path, "delta", consumer_limits={"max_ack_pending": 500})
    goes_on(high, "ORDERS", 12)


def test_runs_are_undone_in_the_order_that_is_told(tmp_path: Path) -> None:
    command = configured(tmp_path, "delta", max_msgs=10, segment_span="100d")
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    first = command.json("apply", "ORDERS", "--yes")["streams"][0]["run"]
    command.json("drop", "ORDERS", "--yes")
    sentence = told(command.run("undo", first))
    [later] = re.findall(r"run (\S+) dropped the stream .*undo that one first", sentence)
    assert command.run("undo", later).exit_code == 0
    assert command.json("undo", first)["restored_messages"] == 2
    goes_on(command, "ORDERS", 12)


def test_a_dropped_stream_comes_back_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    command.json("apply", "ORDERS", "--yes")
    command.json("drop", "ORDERS", "--yes")
    sentence = told(command.run("restore", "ORDERS"))
    run_as_told(command, sentence, "undo")
    goes_on(command, "ORDERS", 12)


def test_a_damaged_plan_is_made_again_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    saved = tmp_path / "monday"
    command.json("plan", "ORDERS", "-o", saved)
    part = tmp_path / "monday.files.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    assert "plan again" in told(command.run("apply", saved, "--yes"))
    for file in tmp_path.glob("monday*"):
        file.unlink()
    command.json("plan", "ORDERS", "-o", saved)
    assert command.run("apply", saved, "--yes").exit_code == 0
    goes_on(command, "ORDERS", 12)


def test_an_estimate_comes_after_the_plan_that_is_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    put(command, foreign_rows([13], 11))
    shutil.rmtree(tmp_path / "streams/ORDERS/_retention/stats")
    sentence = told(command.run("plan", "ORDERS", "--estimate"))
    run_as_told(command, sentence, "plan")
    assert command.run("plan", "ORDERS", "--estimate").exit_code == 0
    goes_on(command, "ORDERS", 13)


def test_an_import_goes_into_a_new_stream_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    backup = tmp_path / "ORDERS.arc"
    command.json("export", "nats-backup", "ORDERS", backup)
    sentence = told(command.run("export", "nats-backup", "ORDERS", backup))
    assert "name another place, or remove that file" in sentence
    backup.unlink()
    Path(f"{backup}.json").unlink()
    command.json("export", "nats-backup", "ORDERS", backup)
    sentence = told(command.run("import", "nats-backup", backup))
    assert "import into a new stream (--stream)" in sentence
    command.json("import", "nats-backup", backup, "--stream", "ORDERS_3")
    MESSAGE["ORDERS_3"] = MESSAGE["ORDERS"]
    goes_on(command, "ORDERS_3", 12)
    goes_on(command, "ORDERS", 12)


def test_messages_come_back_as_a_new_stream_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    command.json("apply", "ORDERS", "--yes")
    command.json("drop", "ORDERS", "--yes")
    command.json("publish", "ORDERS", "-", stdin=MESSAGE["ORDERS"])
    sentence = told(command.run("restore", "ORDERS", "--from", tmp_path / "archive"))
    assert "with --as" in sentence
    command.json("restore", "ORDERS", "--from", tmp_path / "archive", "--as", "ORDERS_OLD")
    MESSAGE["ORDERS_OLD"] = MESSAGE["ORDERS"]
    goes_on(command, "ORDERS_OLD", 12)
    goes_on(command, "ORDERS", 1)


def test_a_topic_is_emptied_as_told(tmp_path: Path) -> None:
    command = configured(tmp_path, "delta")
    command.json("publish", "clicks", "-", stdin="\n".join([MESSAGE["clicks"]] * 3))
    sentence = told(command.run("purge", "clicks", "--keep", "1", "--yes"))
    [text] = [text for text in COMMAND.findall(sentence) if text.startswith("purge")]
    assert command.run(*shlex.split(text), "--yes").exit_code == 0
    [segments] = [text for text in COMMAND.findall(sentence) if "PARTITION" in text]
    words = shlex.split(segments.replace("PARTITION", "0").replace(" N", " 1"))
    assert command.run(*words, "--yes").exit_code == 0
    command.json("publish", "clicks", "-", stdin=MESSAGE["clicks"])
    goes_on(command, "clicks", 0)


def test_a_stream_that_was_renamed_says_so_as_told(tmp_path: Path) -> None:
    laid(tmp_path)
    (tmp_path / "streams/ORDERS").rename(tmp_path / "streams/SALES")
    renamed = commands(tmp_path, {**ORDERS, "name": "SALES"}, format="delta")
    sentence = told(renamed.run("apply", "SALES", "--yes"))
    assert "say SALES in its _retention/format.json" in sentence
    record = tmp_path / "streams/SALES/_retention/format.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"stream": "SALES"}))
    MESSAGE["SALES"] = MESSAGE["ORDERS"]
    goes_on(renamed, "SALES", 12)


def test_a_link_out_of_the_warehouse_is_replaced_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path / "lake")
    place = tmp_path / "lake/streams/ORDERS/messages"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert "put the directory itself there" in told(command.run("apply", "ORDERS", "--yes"))
    place.unlink()
    (tmp_path / "elsewhere").rename(place)
    goes_on(command, "ORDERS", 12)


def test_a_backup_is_copied_again_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path)
    sound, copy = tmp_path / "ORDERS.arc", tmp_path / "copy.arc"
    command.json("export", "nats-backup", "ORDERS", sound)
    copy.write_bytes(sound.read_bytes()[:-40])
    sentence = told(command.run("import", "nats-backup", copy, "--stream", "ORDERS_4"))
    assert "make or copy the backup again" in sentence
    shutil.copy(sound, copy)
    command.json("import", "nats-backup", copy, "--stream", "ORDERS_4")
    MESSAGE["ORDERS_4"] = MESSAGE["ORDERS"]
    goes_on(command, "ORDERS_4", 12)


def test_a_line_is_corrected_as_told(tmp_path: Path) -> None:
    command = laid(tmp_path, max_msg_size=60)
    long = json.dumps({"subject": "orders.new", "data": "x" * 100})
    batch = "\n".join([MESSAGE["ORDERS"], long])
    sentence = told(command.run("publish", "ORDERS", "-", stdin=batch))
    assert "correct or remove that line" in sentence
    assert next_seq(command, "ORDERS") == 13
    goes_on(command, "ORDERS", 13)


def test_commands_in_sentences_are_quoted_for_a_shell(tmp_path: Path) -> None:
    wanted = {"name": "the clicks", "partitions": 1, "message_expiry": "1d"}
    file = tmp_path / "retention.yaml"
    content = {"warehouse": ".", "defaults": {"format": "delta"}, "topics": [wanted]}
    file.write_text(json.dumps(content))
    command = Commands(tmp_path)
    message = MESSAGE["the clicks"] = MESSAGE["clicks"]
    command.json("publish", "the clicks", "-", stdin=message)
    [place] = tmp_path.glob("streams/*/messages/*/*/*.parquet")
    place.unlink()
    sentence = told(command.run("messages", "the clicks"))
    assert "`retention repair lost 'the clicks' partition=0/segment=0/" in sentence
    run_as_told(command, sentence, "repair lost")
    goes_on(command, "the clicks", 0)


def test_a_copied_warehouse_is_let_write_to_the_archive_as_told(tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    command = laid(tmp_path / "lake", archive=archive)
    assert command.run("apply", "ORDERS", "--yes").exit_code == 0
    command.json("publish", "ORDERS", "-", stdin=MESSAGE["ORDERS"])
    shutil.copytree(tmp_path / "lake", tmp_path / "moved")
    shutil.rmtree(tmp_path / "lake")
    moved = configured(tmp_path / "moved", "delta", archive=archive)
    sentence = told(moved.run("apply", "ORDERS", "--yes"))
    run_as_told(moved, sentence, "repair place")
    goes_on(moved, "ORDERS", 13)


@pytest.mark.parametrize(
    ("setting", "request_"),
    [
        ("deny_purge", ["purge", "ORDERS"]),
        ("deny_delete", ["delete", "ORDERS", "10"]),
        ("sealed", ["purge", "ORDERS"]),
    ],
)
def test_a_setting_that_forbids_a_request_is_taken_out_as_told(
    tmp_path: Path, setting: str, request_: list[str]
) -> None:
    laid(tmp_path)
    command = configured(tmp_path, "delta", **{setting: True})
    assert command.run("apply", "ORDERS", "--yes").exit_code == 0
    assert f"take {setting} out of the configuration" in told(command.run(*request_, "--yes"))
    command = configured(tmp_path, "delta")
    assert command.run(*request_, "--yes").exit_code == 0
    goes_on(command, "ORDERS", 12)


@pytest.mark.parametrize("remedy", ["room", "limits"])
def test_a_mirror_that_is_full_goes_on_as_told(tmp_path: Path, remedy: str) -> None:
    full = {"name": "COPY", "sources": [{"name": "ORDERS"}], "max_msgs": 8, "discard": "new"}
    command = commands(tmp_path, ORDERS, full)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    sentence = told(command.run("mirror", "COPY"))
    if remedy == "limits":
        assert "raise the stream's limits" in sentence
        command = commands(tmp_path, ORDERS, full | {"max_msgs": 20})
    else:
        [purge] = COMMAND.findall(sentence)
        assert command.run(*shlex.split(purge.replace("N", "2")), "--yes").exit_code == 0
    done = command.run("mirror", "COPY")
    assert done.exit_code == 0, done.output
    assert "4 messages" in done.output


def test_partitions_are_added_to_a_topic_as_told(tmp_path: Path) -> None:
    command = configured(tmp_path, "delta")
    command.json("publish", "clicks", "-", stdin="\n".join([MESSAGE["clicks"]] * 3))
    command.json("apply", "clicks", "--yes")
    log = written(tmp_path / "iggy", {str(n): {0: log_09([Message(0)], 1, n)} for n in range(2)})
    new = {"name": "views", "partitions": 1}
    file = tmp_path / "retention.yaml"
    configuration = json.loads(file.read_text())
    file.write_text(json.dumps(configuration | {"topics": [CLICKS, new]}))
    imports = ("import", "iggy-log", log, "--topic", "views")
    sentence = told(command.run(*imports))
    assert "nothing was imported; write partitions: 2" in sentence
    file.write_text(json.dumps(configuration | {"topics": [CLICKS, new | {"partitions": 2}]}))
    command.json(*imports)
    MESSAGE["views"] = '{"data": "x", "partition": 1}'
    goes_on(command, "views", 0)


def test_an_ack_log_goes_on_as_told(tmp_path: Path) -> None:
    command = configured(tmp_path, "delta")
    command.json("publish", "WORK", "-", stdin='{"subject": "work.new"}')
    command.json("consumer", "add", "WORK", "billing")
    log = tmp_path / "acks.jsonl"
    subjects = (f"$JS.ACK.WORK.billing.1.{n}.{n}.1790000000000000000.0" for n in (1, 2))
    acks = [json.dumps({"subject": subject, "data": "+ACK"}) + "\n" for subject in subjects]
    log.write_text("".join(acks))
    fold = ("consumer", "fold", "WORK", log)
    assert "append the messages first, then fold again" in told(command.run(*fold))
    command.json("publish", "WORK", "-", stdin='{"subject": "work.new"}')
    command.json(*fold)
    log.write_text(acks[0])
    assert "restore it, or give another log a name of its own" in told(command.run(*fold))
    log.write_text("".join(acks))
    command.json(*fold)
    goes_on(command, "WORK", 2)
