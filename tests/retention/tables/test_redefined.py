"""Tables that others redefine between plan, apply and undo: nothing that was decided about the earlier one is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from retention.delta import snapshot as delta_log
from retention.errors import RefusedError, StalePlanError
from retention.tables.apply import apply_plan
from retention.tables.undo import undo_run
from tests.retention.tables.tables import NOW, ROWS, Events, Removals, events
from tests.support.delta_tables import write_entry

SOME: Removals = {0: {"max_age": None}, 1: {"max_age": BitMap64(range(10))}}
IDS = pa.array(range(5), pa.int64())
Change = Callable[[Events], None]


@pytest.fixture(params=[False, True], ids=["copies", "vectors"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Events:
    return events(tmp_path, vectors=request.param)


def overwritten(columns: dict[str, Any], **options: Any) -> Change:
    def change(table: Events) -> None:
        write_deltalake(
            table.location, pa.table(columns), mode="overwrite", schema_mode="overwrite", **options
        )

    return change


def remade(table: Events) -> None:
    """Delete the log alone, and make a table of the same columns beside the old files."""
    shutil.rmtree(Path(table.location, "_delta_log"))
    write_deltalake(table.location, pa.table({"id": IDS, "at": IDS}))


def constrained(table: Events) -> None:
    DeltaTable(table.location).alter.add_constraint({"young": "at > 99"})


def required(table: Events) -> None:
    redefine(table, {"id": "id", "at": "at"}, nullable=False)


def redefine(table: Events, names: dict[str, str], *, nullable: bool = True) -> None:
    """Rename columns by a mapping: physical name → the name by then."""
    current = delta_log.read(table.location)
    fields = [
        {
            "name": name,
            "type": "long",
            "nullable": nullable,
            "metadata": {
                "delta.columnMapping.id": at,
                "delta.columnMapping.physicalName": physical,
            },
        }
        for at, (physical, name) in enumerate(names.items(), 1)
    ]
    mapped = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "2",
        **current.properties,
    }
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {**current.metadata, "configuration": mapped, "schemaString": schema}
    features = sorted({"columnMapping", *(current.protocol.get("writerFeatures") or ())})
    readers = sorted({"columnMapping", *(current.protocol.get("readerFeatures") or ())})
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        "writerFeatures": features,
    }
    write_entry(
        Path(table.location),
        current.version + 1,
        [{"commitInfo": {}}, {"protocol": protocol}, {"metaData": metadata}],
    )


def live(table: Events) -> list[str]:
    return sorted(delta_log.read(table.location).files["path"].to_pylist())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (remade, "another table is there"),
        (
            overwritten({"id": IDS, "at": IDS, "day": ["x"] * 5}, partition_by=["day"]),
            "is partitioned by other columns",
        ),
        (overwritten({"id": IDS.cast(pa.string()), "at": IDS}), "the column id has another type"),
        (constrained, "the constraint young"),
        (required, "takes no nulls"),
    ],
    ids=["remade", "partitions", "type", "constraint", "required"],
)
def test_files_of_the_earlier_table_are_not_restored(
    table: Events, change: Change, why: str
) -> None:
    run = apply_plan(table.opened, table.plan(SOME)).run
    change(table)
    before = live(table)
    with pytest.raises(RefusedError, match=why):
        undo_run(table.opened, run)
    assert live(table) == before


def test_rows_come_back_to_a_table_with_another_column_or_other_names(table: Events) -> None:
    run = apply_plan(table.opened, table.plan(SOME)).run
    later = pa.table({"id": [900], "at": [900], "z": ["x"]})
    write_deltalake(table.location, later, mode="append", schema_mode="merge")
    undo_run(table.opened, run)
    assert table.ids() == [*range(4 * ROWS), 900]
    run = apply_plan(table.opened, replace(table.plan(SOME), as_of_ns=NOW)).run
    redefine(table, {"id": "number", "at": "at"})
    undo_run(table.opened, run)
    assert len(live(table)) == 5


@pytest.mark.parametrize("names", [{"id": "at", "at": "id"}, {"id": "id", "at": "when"}], ids=str)
def test_a_plan_by_a_column_that_was_renamed_is_stale(table: Events, names: dict[str, str]) -> None:
    plan = table.plan(SOME)
    redefine(table, names)
    before = live(table)
    with pytest.raises(StalePlanError, match="the column at may be another one"):
        apply_plan(table.opened, plan)
    assert live(table) == before


def test_a_plan_stands_though_other_columns_came(table: Events) -> None:
    plan = table.plan(SOME)
    later = pa.table({"id": [900], "at": [900], "z": ["x"]})
    write_deltalake(table.location, later, mode="append", schema_mode="merge")
    apply_plan(table.opened, plan)
    assert table.ids() == [*range(110, 4 * ROWS), 900]
