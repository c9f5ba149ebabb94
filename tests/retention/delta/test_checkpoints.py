from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.delta import snapshot
from retention.errors import DamagedError
from tests.support.delta_tables import add, write_entry

UUID = "0123abcd-9a1b-4c3d-8e7f-0123456789ab"
OF_TABLE = ["protocol", "metaData"]
NAME = f"{3:020d}.checkpoint"


def table(root: Path) -> tuple[Path, pa.Table]:
    """A table of four files: its log, and the rows of its classic checkpoint, which is taken away."""
    for number in range(4):
        rows = pa.table({"id": [number], "p": [f"{number % 2} é"]})
        write_deltalake(root, rows, mode="append", partition_by=["p"])
    DeltaTable(root).create_checkpoint()
    log = root / "_delta_log"
    (log / "_last_checkpoint").unlink()
    rows = pq.read_table(log / f"{NAME}.parquet")
    (log / f"{NAME}.parquet").unlink()
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    return log, rows


def split(rows: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """The rows of the table's actions, and those of its files in two halves."""
    files = rows.filter(rows["add"].is_valid()).select(["add"])
    return rows.filter(rows["add"].is_null()).select(OF_TABLE), [files.slice(0, 3), files.slice(3)]


def classic(log: Path, rows: pa.Table, row_group_size: int = 2) -> None:
    pq.write_table(rows, log / f"{NAME}.parquet", row_group_size=row_group_size)


def in_parts(log: Path, rows: pa.Table) -> None:
    for number, part in enumerate((rows.slice(0, 3), rows.slice(3)), 1):
        pq.write_table(part, log / f"{NAME}.{number:010d}.{2:010d}.parquet")


def sidecars(log: Path, rows: pa.Table) -> tuple[list[dict[str, object]], pa.Table]:
    (log / "_sidecars").mkdir()
    top, halves = split(rows)
    for number, half in enumerate(halves):
        pq.write_table(half, log / "_sidecars" / f"{number} a.parquet")
    paths = ["0%20a.parquet", f"file://{log}/_sidecars/1%20a.parquet"]
    return [{"path": path, "sizeInBytes": 1, "modificationTime": 1} for path in paths], top


def v2_in_parquet(log: Path, rows: pa.Table) -> None:
    named, top = sidecars(log, rows)
    pq.write_table(top.append_column("sidecar", pa.array(named)), log / f"{NAME}.{UUID}.parquet")


def v2_in_json(log: Path, rows: pa.Table) -> None:
    named, top = sidecars(log, rows)
    described = top.to_pylist(maps_as_pydicts="strict")
    actions = [{k: row[k]} for row in described for k in OF_TABLE if row[k] is not None]
    actions += [{"checkpointMetadata": {"version": 3}}, *({"sidecar": each} for each in named)]
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{NAME}.{UUID}.json").write_text(lines)


FORMS = [classic, in_parts, v2_in_parquet, v2_in_json]


@pytest.mark.parametrize("write", FORMS, ids=lambda write: write.__name__)
def test_every_form_has_the_files_and_the_table(
    tmp_path: Path, write: Callable[[Path, pa.Table], None]
) -> None:
    log, rows = table(tmp_path)
    write(log, rows)
    state = snapshot.read(str(tmp_path))
    expected = rows["add"].drop_null().to_pylist()
    for name in ("path", "stats", "size"):
        assert sorted(state.files[name].to_pylist()) == sorted(each[name] for each in expected)
    values = state.files["partition_values"].to_pylist(maps_as_pydicts="strict")
    assert sorted(value["p"] for value in values) == ["0 é", "0 é", "1 é", "1 é"]
    assert state.metadata["partitionColumns"] == ["p"]
    assert state.metadata["configuration"] == {}
    assert (state.protocol["minReaderVersion"], state.version) == (1, 3)
    write_entry(tmp_path, 4, [add("p=0%2520%25C3%25A9/new")])
    assert snapshot.advance(state).files.num_rows == 5


@pytest.mark.parametrize("between", [0, 1, 20])
def test_files_between_other_actions_are_found(tmp_path: Path, between: int) -> None:
    log, rows = table(tmp_path)
    of_table, files = rows.filter(rows["add"].is_null()), rows.filter(rows["add"].is_valid())
    other = of_table.slice(0, 1)
    turns = [piece for at in range(4) for piece in (files.slice(at, 1), *[other] * between)]
    classic(log, pa.concat_tables([*turns, of_table]), row_group_size=1_000)
    state = snapshot.read(str(tmp_path))
    assert sorted(state.files["path"].to_pylist()) == sorted(
        each["path"] for each in files["add"].to_pylist()
    )
    assert state.metadata["partitionColumns"] == ["p"]


@pytest.mark.parametrize("write", [v2_in_parquet, v2_in_json], ids=lambda write: write.__name__)
def test_a_missing_sidecar_is_damage(
    tmp_path: Path, write: Callable[[Path, pa.Table], None]
) -> None:
    log, rows = table(tmp_path)
    write(log, rows)
    (log / "_sidecars" / "1 a.parquet").unlink()
    with pytest.raises(
        DamagedError, match=r"1 a\.parquet: this file of a checkpoint .*it is missing"
    ):
        snapshot.read(str(tmp_path))
