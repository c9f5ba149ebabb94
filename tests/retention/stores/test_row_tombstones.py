"""Tables with row tombstones of earlier builds are refused on both stores, until nothing live has any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from retention.context.context import OpenedStream
from retention.core.counters import RELEASED
from retention.core.table_requirements import TableState
from retention.errors import DamagedError, RefusedError
from retention.ports import Swap
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from tests.support.laying import SECOND, START, laid_stream

REFUSAL = (
    "stream ORDERS: an earlier build released messages in 1 file of it without rewriting them, and this one would show "
    "those messages again; nothing was changed; set compact: {dead_share: 0} for the stream, run `retention compact` "
    "of commit 64accb89 of this project, which rewrites these files, then come back"
)


@dataclass(frozen=True)
class SetReleased:
    """The number of the current record, as earlier builds set it."""

    number: int
    assigns_sequences: ClassVar[bool] = False

    @property
    def counters(self) -> dict[str, int]:
        return {RELEASED: self.number}

    def check(self, state: TableState) -> None:
        del state


@pytest.fixture(params=["delta", "parquet"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> OpenedStream:
    return laid_stream(tmp_path, request.param, START + 100 * SECOND, 2)


def commit(opened: OpenedStream, number: int, remove: Sequence[str] = ()) -> None:
    """Commit the number of a record, as the last run of an earlier build."""
    snapshot = opened.store.snapshot()
    goes = pc.is_in(snapshot.files["path"], value_set=pa.array(remove, pa.string()))
    swap = Swap(
        remove=snapshot.files.filter(goes).select(LOGGED_FILES.names).cast(LOGGED_FILES),
        add=FILE_STATS.empty_table(),
        metadata={"run": f"released-{number}"},
        updates=[SetReleased(number)],
    )
    opened.store.commit(swap, snapshot)


def record(opened: OpenedStream, number: int, *paths: str) -> Path:
    """A record that names files, as earlier builds placed it."""
    place = Path(opened.root, "_retention", "released", f"{number:020d}.parquet")
    place.parent.mkdir(exist_ok=True)
    table = pa.table({"path": pa.array(paths, pa.string()), "messages": [1] * len(paths)})
    pq.write_table(table, place)
    return place


def test_a_table_with_row_tombstones_is_refused_by_every_way_to_open_it(
    opened: OpenedStream,
) -> None:
    path = opened.store.snapshot().files["path"][0].as_py()
    record(opened, 1, path, "partition=0/segment=1/gone.parquet")
    commit(opened, 1)
    for opening in (
        opened.store.snapshot,
        opened.store.resurrected_files,
        opened.store.lost_commits,
    ):
        with pytest.raises(RefusedError) as refused:
            opening()
        assert str(refused.value) == REFUSAL
    token = opened.store.version_token()
    assert token is None or opened.store.incremental_inventory(token) is None


def test_a_table_is_opened_once_its_tombstoned_files_are_rewritten(opened: OpenedStream) -> None:
    path = opened.store.snapshot().files["path"][0].as_py()
    record(opened, 1, path)
    commit(opened, 1, [path])
    assert opened.store.snapshot().files.num_rows == 1
    assert opened.store.inventory(opened.store.snapshot()).counters.released == 1


@pytest.mark.parametrize("content", [None, b"not a record"])
def test_a_record_that_cannot_be_read_is_damage(
    opened: OpenedStream, content: bytes | None
) -> None:
    place = record(opened, 1)
    commit(opened, 1)
    if content is None:
        place.unlink()
    else:
        place.write_bytes(content)
    with pytest.raises(DamagedError, match="record of what is released in stream ORDERS"):
        opened.store.snapshot()
