"""A data file that contradicts the log, the statistics or the plan is refused by name by every reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.api.warehouse import Warehouse
from retention.errors import RetentionError
from retention.plan.plan import Plan
from tests.support.cached_statistics import rewrite
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.trees import overwrite, tree

CUT = "segment=6"
"""One of three segments with five messages each; rules remove the first, and two messages of this one."""


@pytest.fixture(params=["delta", "parquet"])
def laid(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    now = START + 10**6 * SECOND
    warehouse = warehouse_with(tmp_path, request.param, now, max_msgs=9, max_msgs_per_subject=3)
    payload = np.random.default_rng(1).bytes(30_000)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(3, 5, payload=payload))
    return warehouse


def _set(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


OTHERS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "fewer rows": lambda rows: rows.slice(0, 4),
    "other sequences": lambda rows: _set(rows, "seq", [5, 6, 7, 8, 9]),
    "other times": lambda rows: _set(rows, "ts_ns", [START + n for n in range(5)]),
    "other sizes": lambda rows: _set(rows, "size", [1] * 5),
    "another schema": lambda rows: rows.drop_columns(["headers"]),
    "a column of another type": lambda rows: rows.set_column(
        rows.schema.get_field_index("seq"), "seq", rows["seq"].cast(pa.int32())
    ),
}


def replaced(warehouse: Warehouse, change: Callable[[pa.Table], pa.Table]) -> Path:
    """Replace the rows of a file, with the same path, length and modification time."""
    [file] = (Path(warehouse.location) / "streams/ORDERS/messages").rglob(f"{CUT}/*.parquet")
    length = file.stat().st_size
    rows = change(pq.ParquetFile(file).read())
    rows = _set(rows, "payload", [b""] * rows.num_rows)
    room = length - len(_content(rows, 0))
    fits = (_content(rows, padding) for padding in range(room, room - 8, -1))
    overwrite(file, next(content for content in fits if len(content) == length))
    return file


def _content(rows: pa.Table, padding: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"padding": "x" * padding})
    return sink.getvalue().to_pybytes()


def _plan(warehouse: Warehouse) -> Plan:
    plan = warehouse.plan()[0].value
    assert plan is not None
    return plan


def _apply(warehouse: Warehouse, _: Plan) -> Any:
    return warehouse.apply()[0].error


def _apply_saved(warehouse: Warehouse, plan: Plan) -> Any:
    return warehouse.apply_plans([plan])[0].error


def _count_subjects(warehouse: Warehouse, _: Plan) -> Any:
    for file in (Path(warehouse.location) / "streams/ORDERS/_retention/subjects").rglob(
        "*.parquet"
    ):
        file.unlink()
    return warehouse.plan()[0].error


def _explain(warehouse: Warehouse, _: Plan) -> Any:
    return _raised(lambda: warehouse.stream("ORDERS").explain(7))


def _read(warehouse: Warehouse, _: Plan) -> Any:
    return _raised(lambda: held(warehouse))


def _raised(act: Callable[[], object]) -> Exception | None:
    try:
        act()
    except RetentionError as error:
        return error
    return None


ACTS = {
    "apply": _apply,
    "apply a saved plan": _apply_saved,
    "count subjects": _count_subjects,
    "explain": _explain,
    "read": _read,
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("other", OTHERS)
def test_a_file_that_holds_something_else_is_refused_by_whoever_opens_it(
    laid: Warehouse, act: str, other: str
) -> None:
    plan = _plan(laid)
    file = replaced(laid, OTHERS[other])
    before = _tables(laid)
    error = ACTS[act](laid, plan)
    if act == "count subjects" and other == "other sizes":
        # The counted columns are consistent; the pass itself reads sizes.
        error = ACTS["apply"](laid, plan)
    assert isinstance(error, RetentionError), "was acted upon"
    assert file.name in str(error)
    assert error.exit_code in (4, 6)
    assert _tables(laid) == before


def _tables(warehouse: Warehouse) -> dict[str, str]:
    root = Path(warehouse.location) / "streams/ORDERS"
    return tree(root / "messages") | tree(root / "_retention/log")


@pytest.mark.parametrize(
    ("name", "value"), [("numRecords", 4), ("seq", 8), ("ts_ns", START + 7 * SECOND)]
)
def test_a_log_that_contradicts_statistics_and_file_is_refused(
    tmp_path: Path, name: str, value: int
) -> None:
    warehouse = warehouse_with(tmp_path, "delta", START + 10**6 * SECOND, max_msgs=9)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(3, 5))
    log = tmp_path / "streams/ORDERS/messages/_delta_log/00000000000000000001.json"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    [add] = (
        entry["add"] for entry in entries if f"/{CUT}/" in entry.get("add", {}).get("path", "")
    )
    stats = json.loads(add["stats"])
    if name == "numRecords":
        stats[name] = value
    else:
        stats["maxValues"][name] = value
    add["stats"] = json.dumps(stats)
    log.write_text("\n".join(map(json.dumps, entries)))
    before = _tables(warehouse)
    error = warehouse.apply()[0].error
    assert isinstance(error, RetentionError), "was acted upon"
    assert Path(add["path"]).name in str(error)
    assert _tables(warehouse) == before


def test_statistics_that_contradict_the_log_are_learned_again(tmp_path: Path) -> None:
    warehouse = warehouse_with(tmp_path, "delta", START + 10**6 * SECOND, max_msgs=9)
    lay(warehouse.new_stream("ORDERS").opened, even_segments(3, 5))
    [cache] = (tmp_path / "streams/ORDERS/_retention/stats").iterdir()
    rewrite(cache, lambda rows: _set(rows, "max_seq", [5, 10, 14]))
    [report] = warehouse.apply()
    assert report.value is not None
    assert report.value.files_read >= 1
    assert held(warehouse)["seq"].to_pylist() == list(range(7, 16))
