from __future__ import annotations

import json

import pyarrow as pa

from retention.schemas.history_export import HISTORY_EXPORT
from retention.views.history_export import csv_lines, json_pieces

ROW = {
    "stream": "@ORDERS",
    "run": "r1",
    "user": "=HYPERLINK(A1)",
    "host": "\tbox",
    "rules": ["-max", "=x"],
    "removed_messages": -3,
    "ranges": [{"first_seq": 1, "last_seq": 2}],
}


def test_only_csv_has_an_apostrophe_before_what_a_spreadsheet_would_calculate() -> None:
    shape = pa.schema([HISTORY_EXPORT.field(name).with_nullable(nullable=True) for name in ROW])
    table = pa.Table.from_pylist([ROW], shape)
    _, line = csv_lines([table], shape)
    assert line == "'@ORDERS,r1,'=HYPERLINK(A1),'\tbox,'-max; =x,-3,1-2"
    whole = pa.Table.from_pylist(
        [ROW], pa.schema([field.with_nullable(nullable=True) for field in HISTORY_EXPORT])
    )
    [run] = json.loads("".join(json_pieces([whole], {"from": None, "to": None})))["runs"]
    assert (run["stream"], run["user"]) == ("@ORDERS", "=HYPERLINK(A1)")
