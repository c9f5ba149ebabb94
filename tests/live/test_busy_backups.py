"""Backups of streams in use: messages are removed while a server writes the backup; import and restore agree."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.core.units import SECOND
from retention.errors import DamagedError
from retention.formats.nats.account import NUMBERS
from retention.formats.nats.backup import RAW_ROWS, Backup, read_backup, write_backup
from retention.ingest.import_nats import Imported
from tests.support import nats_oracle
from tests.support.nats_oracle import Nats, Published
from tests.support.sandboxes import opened

pytestmark = pytest.mark.live

BACKUPS = int(os.environ.get("RETENTION_BACKUPS", "5"))
"""`make long NAME=backups` takes 50."""
FORMATS = ("delta", "parquet")
PAYLOAD_BYTES = 2_000
"""A server reads 4 MiB ahead of its sent data, so streams must be longer."""
GAP_S = 1.2
POLLS, POLL_S = 200, 0.1
"""The polling interval for removals by age on a server; its timers are up to 0.3 seconds late."""

LIMITS: dict[str, tuple[dict[str, int | bool], dict[str, int | bool]]] = {
    "max_msgs": ({"max_msgs": 3_000}, {"max_msgs": 1_000}),
    "max_msgs_per_subject": ({"max_msgs_per_subject": 5}, {"max_msgs_per_subject": 2}),
    "max_bytes": ({"max_bytes": 6_000_000}, {"max_bytes": 2_000_000}),
    "max_age": ({"duplicate_window": SECOND}, {}),
    "ttl": ({"allow_msg_ttl": True}, {"allow_msg_ttl": True}),
}
"""The limits of a stream in use, and those of the restore of its backup, which also remove messages.

Ages are set at run time.
"""
PAUSES_S = {"max_age": 1.6, "ttl": 1.2}
"""Messages expire while the server waits for an ack."""
CASES = [(kind, number) for number in range(BACKUPS // len(LIMITS)) for kind in LIMITS]


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with nats_oracle.server() as running:
        yield running


def messages(name: str, kind: str, count: int, draw: random.Random) -> list[Published]:
    """Incompressible messages; of those with TTLs, half live for a second, and half for an hour."""

    def one(number: int) -> Published:
        lives = {"Nats-TTL": "1s" if number % 2 else "1h"} if kind == "ttl" else None
        return f"{name}.{draw.randrange(600)}", draw.randbytes(PAYLOAD_BYTES), lives

    return [one(number) for number in range(count)]


def in_use(nats: Nats, name: str, kind: str, draw: random.Random, path: Path) -> Backup:
    """Fill a stream, and back it up during publishes and expiry."""
    config = {"name": name, "subjects": [f"{name}.>"], **LIMITS[kind][0]}
    nats.request(f"STREAM.CREATE.{name}", config)
    nats.publish(messages(name, kind, draw.randint(3_000, 3_500), draw))
    if kind == "max_age":
        filled_ns = time.time_ns()  # noqa: TID251  (the server's clock)
        time.sleep(GAP_S)
        nats.publish(messages(name, kind, draw.randint(100, 500), draw))
        # The first ones expire within a second, regardless of the time taken so far.
        age_ns = time.time_ns() - filled_ns  # noqa: TID251
        nats.update({**nats.info(name)["config"], "max_age": age_ns + SECOND})
    load = (messages(name, kind, draw.randint(150, 250), draw) for _ in range(40))
    nats.snapshot_in_use(name, path, load, PAUSES_S.get(kind, 0))
    nats.delete(name)
    return read_backup(path)


def age_within_gap(rows: pa.Table, now_ns: int) -> int:
    """A `max_age` that removes the messages before the longest pause at once, and those after it later."""
    times = rows["ts_ns"].to_numpy()
    at = int(np.argmax(np.diff(times)))
    return now_ns - int(times[at] + times[at + 1]) // 2


def restored(nats: Nats, name: str, backup: Backup, limits: Mapping[str, Any]) -> dict[str, int]:
    """The state of a server's restore of a backup under these limits."""
    config = {"name": name, "subjects": [f"{backup.name}.>"], **limits}
    found: dict[str, Any] = nats.restore_archive(config, dict(backup.state), backup.path)["state"]
    begins = found["first_seq"]
    for _ in range(POLLS if "max_age" in limits else 0):
        time.sleep(POLL_S)
        found = nats.info(name)["state"]
        if found["first_seq"] > begins:
            break
    return {key: found[key] for key in NUMBERS}


def instant_of(rows: pa.Table, state: Mapping[str, int], max_age: int) -> int:
    """The instant at which the last message removed by age on the server reached that age."""
    seqs, times = rows["seq"].to_numpy(), rows["ts_ns"].to_numpy()
    return int(times[seqs < state["first_seq"]].max()) + max_age


def rows_of(backup: Backup) -> pa.Table:
    return pa.concat_tables([RAW_ROWS.empty_table(), *backup.batches()])


def kept(stream: Stream) -> dict[str, int]:
    state = stream.state()
    return {key: getattr(state, key) for key in NUMBERS}


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_stream_in_use_is_imported_as_it_is_restored(
    nats: Nats, tmp_path: Path, kind: str, number: int
) -> None:
    name, draw = f"BUSY_{kind}_{number}", random.Random(f"{kind} {number}")
    backup = in_use(nats, name, kind, draw, tmp_path / name)
    rows, now_ns = rows_of(backup), time.time_ns()  # noqa: TID251  (the instant of the restore)
    limits = dict(LIMITS[kind][1])
    if kind == "max_age":
        limits["max_age"] = age_within_gap(rows, now_ns)
    expected = restored(nats, f"{name}_AGAIN", backup, limits)
    if kind == "max_age":
        # A server continues to remove messages; the removed ones give the instant.
        now_ns = instant_of(rows, expected, limits["max_age"])
        assert now_ns <= time.time_ns()  # noqa: TID251  (nothing goes before it is due)
    config = {"name": name, "subjects": [f"{name}.>"], "format": FORMATS[number % 2], **limits}
    warehouse = opened(tmp_path / "warehouse", config, now_ns=now_ns)
    stream = warehouse.new_stream(name)
    check_told(stream, backup)
    [outcome] = warehouse.apply(as_of=now_ns)
    assert outcome.value is not None
    assert outcome.value.removed_messages > 0
    assert kept(stream) == expected
    if kind == "max_age":
        nats.delete(f"{name}_AGAIN")
    else:
        check_rows(nats, f"{name}_AGAIN", stream, tmp_path)


def check_told(stream: Stream, backup: Backup) -> None:
    """Import; the answer has the differences from the server's state document, and `strict` refuses only for them."""
    problem = r"messages is \d+ in state.json and \d+ in the archive"
    with pytest.raises(DamagedError, match=problem):
        stream.import_nats_backup(backup.path, strict=True)
    done: Imported = stream.import_nats_backup(backup.path)
    told = {one.name: (one.stated, one.held) for one in done.differences}
    assert told["messages"] == (backup.state["messages"], done.messages)
    assert kept(stream) == {key: getattr(done, key) for key in NUMBERS}


def check_rows(nats: Nats, name: str, stream: Stream, folder: Path) -> None:
    """Check that the stream equals the server's."""
    nats.snapshot(name, folder / "server")
    stream.export_nats_backup(folder / "here")
    theirs, ours = rows_of(read_backup(folder / "server")), rows_of(read_backup(folder / "here"))
    assert ours.equals(theirs)
    nats.delete(name)


ACCOUNTS: Sequence[tuple[dict[str, int], tuple[int, int, int] | None]] = (
    ({}, (3, 3, 7)),
    ({"messages": 5, "first_seq": 1}, (3, 3, 7)),
    ({"messages": 1}, (3, 3, 7)),
    ({"last_seq": 9}, (3, 3, 9)),
    ({"last_seq": 6}, (3, 3, 7)),
    ({"bytes": 1}, (3, 3, 7)),
    ({"first_seq": 4}, None),
    ({"first_seq": 0}, None),
    ({"messages": 6}, None),
    ({"messages": 0, "first_seq": 9}, None),
    ({"messages": 0, "first_seq": 8}, None),
)
"""A state document, and messages, first and last sequence of the restore of 3, 5 and 7; None: nothing is restored."""


@pytest.mark.parametrize(("change", "ends"), ACCOUNTS)
def test_accounts_are_taken_and_refused_as_restore_does(
    nats: Nats, tmp_path: Path, change: dict[str, int], ends: tuple[int, int, int] | None
) -> None:
    name = "ACCOUNT_" + "_".join(f"{key}_{value}" for key, value in change.items())
    rows = nats_oracle.raw_rows([nats_oracle.Message(seq, f"{name}.a", seq) for seq in (3, 5, 7)])
    state = nats_oracle.state_of(rows, None, "file") | change
    write_backup(tmp_path / name, state, {}, [rows])
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
    stream = opened(tmp_path / "w", {"name": name, "subjects": ["*"]}).new_stream(name)
    if ends is None:
        with pytest.raises(nats_oracle.ServerError, match="restore failed"):
            nats.restore_archive(config, state | {"consumer_count": 0}, tmp_path / name)
        with pytest.raises(DamagedError):
            stream.import_nats_backup(tmp_path / name)
        return
    found = nats.restore_archive(config, state | {"consumer_count": 0}, tmp_path / name)["state"]
    assert tuple(found[key] for key in ("messages", "first_seq", "last_seq")) == ends
    stream.import_nats_backup(tmp_path / name)
    assert kept(stream) == {key: found[key] for key in NUMBERS}
