from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.context.context import OpenedStream
from retention.core import headers
from retention.core.units import SECOND
from retention.errors import RefusedError
from retention.ingest.publish import publish
from retention.schemas.deadlines import NEVER
from tests.support.nats_oracle import Message, Nats, ServerError, server
from tests.support.plain_store import configured, opened_stream, store_of

pytestmark = pytest.mark.live
NO_MESSAGE = 10037

VALUES = (
    *("1", "01", "10", "30", "9s", "1.5s", "1.9s", "2.999s", "10.999s", "11s", "1000ms", "+5s"),
    *("1000000us", "1000000µs", "1000000μs", "1000000000ns", "1h30m", "1h1h", "1.h", "1.s", "   5"),
    *("never", "NEVER", "nEvEr", "", "00", "000", "18446744073709551616", "18446744073709551617"),
    *("0", "+0", "-0", "0s", "0.5s", "999ms", "1µs", "-1", "-1s", "-5m", "+1", "1.5", "0.5", "1e3"),
    *(
        "1_000",
        "0x10",
        "never ",
        "5 ",
        "\t1",
        "1d",
        "1w",
        "1 h",
        "5,6",
        ".5s",
        "abc",
        "\uff11",
        "soon",
    ),
    *("2562048h", "9223372036854775808", "7000000000"),
    *("9223372036", "7500000000", "10000000000", "2562047h"),
    *("9223372036854775807", "99999999999999999999"),
)
"""TTLs as header values; the last six are accepted and expire at once."""
BLOCKS = [
    *([("X", "y"), (headers.TTL, value), ("Z", "z")] for value in VALUES),
    [(headers.TTL, "5")],
    [(headers.TTL, "5"), (headers.TTL, "700")],
    [(headers.TTL, "700"), (headers.TTL, "5")],
    [("Nats-TTL-More", "1"), (headers.TTL, "5"), ("A", "Nats-TTL: 1"), (headers.TTL, "6")],
    [("nats-ttl", "5"), ("NATS-TTL", "soon")],
]
CONFIGS: list[dict[str, Any]] = [
    {"allow_msg_ttl": allowed, "subject_delete_marker_ttl": marker_ttl, "storage": storage}
    | ({"max_msgs_per_subject": 1} if alone else {})
    for allowed, marker_ttl, storage in (
        (False, 0, "file"),
        (True, 0, "memory"),
        (True, 10 * SECOND + 900_000_000, "file"),
    )
    for alone in (False, True)
]


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


def line(subject: str, pairs: list[tuple[str, str]]) -> str:
    return json.dumps({"subject": subject, "data": "x", "headers": pairs})


def our_refusal(opened: OpenedStream, message: str) -> int:
    with pytest.raises(RefusedError, match="server error") as refused:
        publish(opened, [message])
    [code] = re.findall(r"server error (\d+)", str(refused.value))
    return int(code)


def stored_block(nats: Nats, seq: int) -> bytes | None:
    """The headers of a message of T; None if it has expired by now."""
    try:
        stored = nats.request("STREAM.MSG.GET.T", {"seq": seq})["message"]
    except ServerError as error:
        assert error.code == NO_MESSAGE  # noqa: PT017
        return None
    return base64.b64decode(stored["hdrs"])


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_ttl_is_answered_and_stored_as_the_server_does(
    nats: Nats, tmp_path: Path, config: dict[str, Any]
) -> None:
    subjects = [f"T.{number}" for number in range(len(BLOCKS))]
    config = {"name": "T", "subjects": ["T.>"], **config}
    nats.request("STREAM.CREATE.T", {**config, "num_replicas": 1})
    began = time.time_ns()  # noqa: TID251  (the server's clock)
    acks = nats.publish_blocks(
        (subject, headers.build(pairs), b"x")
        for subject, pairs in zip(subjects, BLOCKS, strict=True)
    )
    codes = [ack.get("error", {}).get("err_code") for ack in acks]
    theirs = [stored_block(nats, ack["seq"]) for ack in acks if "error" not in ack]
    nats.delete("T")

    opened = configured(opened_stream(tmp_path, began), **config)
    messages = [line(*message) for message in zip(subjects, BLOCKS, strict=True)]
    answers = list(zip(messages, codes, strict=True))
    publish(opened, [message for message, code in answers if code is None])
    assert [our_refusal(opened, message) for message, code in answers if code] == [
        code for code in codes if code
    ]
    ours = store_of(opened).rows()
    now = time.time_ns()  # noqa: TID251
    blocks, deadlines = ours["headers"].to_pylist(), ours["deadline_ns"].to_pylist()
    for ours_of, deadline, theirs_of in zip(blocks, deadlines, theirs, strict=True):
        assert ours_of == theirs_of or (theirs_of is None and (deadline or NEVER) <= now)
    assert len(theirs) - theirs.count(None) >= 5


def test_stored_ttls_count_once_the_feature_is_on(nats: Nats) -> None:
    """Also in malformed blocks; the server does not even restore unreadable ones."""
    now = time.time_ns()  # noqa: TID251  (the server's clock)
    odd = [b"junk Nats-TTL: 1", b"NATS/1.0\r\nNats-TTL: 1", b"NATS/1.0\r\n\r\n\r\nNats-TTL: 1\r\n"]
    blocks = pa.array([*(headers.build(pairs) for pairs in BLOCKS), *odd])
    readable = headers.ttls(blocks) != headers.UNREADABLE_TTL
    stored = [
        Message(number, "R.x", now - 1_000 * SECOND, block, b"x")
        for number, block in enumerate(blocks.filter(pa.array(readable)).to_pylist(), start=1)
    ]
    nats.restore("R", {"allow_msg_ttl": False}, stored)
    nats.update({**nats.info("R")["config"], "allow_msg_ttl": True})
    theirs = [message.seq for message in nats.survivors("R")]
    nats.delete("R")
    deadlines = headers.ttl_deadlines(
        pa.array([message.headers for message in stored]),
        pa.array([message.ts_ns for message in stored]),
    )
    expiring = pc.fill_null(pc.less_equal(deadlines, now), False)  # noqa: FBT003
    assert np.flatnonzero(~np.asarray(expiring)).tolist() == [seq - 1 for seq in theirs]
    assert 10 < len(theirs) < len(stored) - 10
    unreadable = Message(1, "R.x", now, headers.build([(headers.TTL, "soon")]))
    with pytest.raises(ServerError, match="failed to parse message TTL"):
        nats.restore("R", {"allow_msg_ttl": False}, [unreadable])
