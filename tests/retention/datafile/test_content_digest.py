from __future__ import annotations

import pyarrow as pa
import pytest

from retention.datafile.content_digest import ContentDigest
from tests.support.laying import Laid, rows_of

ROWS = rows_of(
    [
        Laid(seq, f"s.{seq % 3}", payload=b"x" * (seq % 5), headers=b"h" if seq % 2 else None)
        for seq in range(1, 41)
    ]
)


def digest(*tables: pa.Table) -> str:
    content = ContentDigest()
    for rows in tables:
        content.update(rows)
    return content.value


@pytest.mark.parametrize("cuts", [[40], [1, 39], [7, 0, 13, 20], [1] * 40])
def test_how_rows_are_cut_does_not_matter(cuts: list[int]) -> None:
    tables, start = [], 0
    for length in cuts:
        tables.append(ROWS.slice(start, length))
        start += length
    assert digest(*tables) == digest(ROWS)
    assert digest(pa.concat_tables(tables)) == digest(ROWS)
    assert digest(pa.concat_tables(tables).combine_chunks()) == digest(ROWS)


def changed(name: str, row: int, value: object) -> pa.Table:
    values = ROWS[name].to_pylist()
    values[row] = value
    at = ROWS.schema.get_field_index(name)
    return ROWS.set_column(
        at, ROWS.schema.field(name), pa.array(values, ROWS.schema.field(name).type)
    )


OTHERS: dict[str, pa.Table] = {
    "a row less": ROWS.slice(0, 39),
    "two rows in another order": pa.concat_tables(
        [ROWS.slice(1, 1), ROWS.slice(0, 1), ROWS.slice(2)]
    ),
    "another sequence": changed("seq", 3, 99),
    "another subject": changed("subject", 3, "t.0"),
    "a byte that moved to the next payload": changed("payload", 3, b"xx"),
    "an empty header instead of none": changed("headers", 1, b""),
    "a deadline": changed("deadline_ns", 0, 0),
    "another time for people": changed("time", 0, None),
    "a message id that is empty": changed("msg_id", 0, ""),
    "a marker": changed("marker", 0, True),  # noqa: FBT003
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_content_has_another_digest(name: str) -> None:
    assert digest(OTHERS[name]) != digest(ROWS)
