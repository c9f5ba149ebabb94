from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from retention.config.stream import StreamConfig
from retention.core.accepted_times import ALL_TIMES
from retention.dialects.jetstream_copy import CREATED, WRITTEN, CopiedRows, JetStreamCopy
from retention.errors import RefusedError, RetentionError, UsageError

MINE = "2026-11-21T10:00:00.000000001Z"
ANEW = "2026-11-21T10:00:00.000000002Z"


def given(**changed: Any) -> pa.RecordBatch:
    """Two rows as a task gets them, the second with other values."""
    row = dict.fromkeys(WRITTEN.names) | {"seq": 1, "ts_ns": 5, "subject": "a"}
    row |= {"payload": b"", CREATED: MINE}
    schema = pa.schema([*WRITTEN, pa.field(CREATED, pa.string())])
    return pa.RecordBatch.from_pylist([row, row | {"seq": 2} | changed], schema)


@pytest.fixture
def check() -> CopiedRows:
    config = StreamConfig(name="COPY")
    return CopiedRows(JetStreamCopy.of(config), 0, ALL_TIMES, MINE)


def test_rows_of_the_servers_stream_are_taken_unchanged(check: CopiedRows) -> None:
    assert check.filled(given()).equals(given().select(WRITTEN.names))


@pytest.mark.parametrize(
    ("changed", "error", "reason"),
    [
        (
            {CREATED: ANEW},
            RefusedError,
            f"created at {ANEW}, and the one that `sync` names .* {MINE}",
        ),
        ({CREATED: None}, UsageError, "has no created"),
        ({"seq": None}, UsageError, "has no seq"),
        ({"payload": None}, UsageError, "has no payload"),
        ({"seq": 0}, UsageError, "sequence 0, and sequences begin at 1"),
    ],
)
def test_rows_of_another_stream_and_rows_that_are_no_messages_are_refused(
    check: CopiedRows, changed: dict[str, Any], error: type[RetentionError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        check.filled(given(**changed))
