from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention.planners.row_parts import SmallRows, rows_of_parts
from tests.support.laws import law

SCHEMA = pa.schema(
    {"row": pa.int64(), "size": pa.int64(), "shard": pa.int16(), "user": pa.string()}
)
NUMBERS = st.sampled_from([0, 200, 2**31, 2**62]).flatmap(lambda most: st.integers(-most, most))
ROWS = st.fixed_dictionaries(
    {
        "row": NUMBERS,
        "size": st.none() | NUMBERS,
        "shard": st.integers(-(2**15), 2**15 - 1),
        "user": st.none() | st.text(max_size=2),
    }
)


@law
@given(st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=4), st.integers(1, 3))
def test_parts_have_all_rows_in_order(files: list[list[dict[str, object]]], parts: int) -> None:
    dealt: dict[int, list[bytes]] = {number: [] for number in range(parts)}
    for file, values in enumerate(files):
        rows = pa.Table.from_pylist(values, SCHEMA)
        for number, content in SmallRows.of(rows).dealt(np.arange(len(values)) % parts, [file]):
            dealt[number].append(content)
    for number, contents in dealt.items():
        rows, aside = rows_of_parts(contents, SCHEMA)
        assert rows.schema == SCHEMA
        assert rows.to_pylist() == [row for file in files for row in file[number::parts]]
        assert aside == ([] if number else [[file] for file in range(len(files))])


def test_small_integers_take_few_bytes() -> None:
    rows = pa.table({"file": [9] * 1000, "row": range(10**12, 10**12 + 1000)})
    [(_, content)] = SmallRows.of(rows).dealt(np.zeros(1000, np.int64), None)
    assert len(content) < 3000
