from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.storage.row_groups.compact import varint_bytes
from retention.storage.row_groups.footer import UnknownLayoutError
from retention.storage.row_groups.levels import levels_bytes, split_levels
from tests.support.laws import law


def with_length(runs: bytes) -> memoryview:
    return memoryview(len(runs).to_bytes(4, "little") + runs + b"values")


@law
@given(defined=st.lists(st.booleans(), min_size=1, max_size=100))
def test_levels_are_read_as_they_were_written(defined: list[bool]) -> None:
    content = levels_bytes(np.array(defined))
    read, end = split_levels(memoryview(content + b"values"), len(defined))
    assert (read.tolist(), end) == (defined, len(content))


def test_runs_of_both_kinds_follow_each_other() -> None:
    runs = b"\x06\x01" + b"\x03\xa5" + b"\x04\x00"
    read, end = split_levels(with_length(runs), 13)
    assert (
        read.tolist()
        == [True] * 3 + [True, False, True, False, False, True, False, True] + [False] * 2
    )
    assert end == 10


@pytest.mark.parametrize(
    "runs", [b"", b"\x06", b"\x06\x01", b"\x00\x01", b"\x03", b"\x83", varint_bytes(1 << 70)]
)
def test_levels_that_end_early_are_refused(runs: bytes) -> None:
    with pytest.raises(UnknownLayoutError, match="levels of a page are damaged"):
        split_levels(with_length(runs), 13)


def test_a_run_may_be_longer_than_the_page() -> None:
    read, _ = split_levels(with_length(varint_bytes(1 << 60) + b"\x01"), 3)
    assert read.tolist() == [True] * 3
