from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.storage.row_groups.compact import (
    Field,
    Kind,
    ListValue,
    Struct,
    read_struct,
    struct_bytes,
)
from tests.support.laws import law

_INTEGERS = {Kind.I16: 16, Kind.I32: 32, Kind.I64: 64}


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_SIMPLE = {kind: _signed(bits) for kind, bits in _INTEGERS.items()} | {
    Kind.TRUE: st.just(True),  # noqa: FBT003
    Kind.FALSE: st.just(False),  # noqa: FBT003
    Kind.BYTE: st.integers(0, 255),
    Kind.DOUBLE: st.binary(min_size=8, max_size=8),
    Kind.BINARY: st.binary(max_size=300),
}


def _lists(elements: dict[Kind, st.SearchStrategy[object]]) -> st.SearchStrategy[ListValue]:
    return st.sampled_from(sorted(elements)).flatmap(
        lambda kind: st.lists(
            st.booleans() if kind <= Kind.FALSE else elements[kind], max_size=40
        ).map(lambda values: ListValue(kind, values))
    )


def _structs(depth: int) -> st.SearchStrategy[Struct]:
    values: dict[Kind, st.SearchStrategy[object]] = dict(_SIMPLE)
    if depth:
        values[Kind.STRUCT] = _structs(depth - 1)
        values[Kind.LIST] = _lists(dict(values))
    fields = st.sampled_from(sorted(values)).flatmap(
        lambda kind: values[kind].map(lambda value: Field(kind, value))
    )
    return st.dictionaries(st.integers(1, 2**15 - 1), fields, max_size=6)


@law
@given(_structs(2))
def test_a_struct_is_read_as_it_was_written(fields: Struct) -> None:
    content = struct_bytes(fields)
    assert read_struct(content) == (fields, len(content))
    assert struct_bytes(read_struct(content)[0]) == content


@law
@given(_structs(1), st.data())
def test_a_struct_that_is_cut_off_is_refused(fields: Struct, data: st.DataObject) -> None:
    content = struct_bytes(fields)
    end = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(ValueError, match=r"cut off|longer than"):
        read_struct(content[:end])


@law
@given(st.binary(max_size=200))
def test_any_other_bytes_are_a_struct_or_are_refused(content: bytes) -> None:
    try:
        _, end = read_struct(content)
    except ValueError:
        return
    assert end <= len(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x1f\x00", "unknown type 15"),
        (b"\x15\x02\x05\x02\x04\x00", "field 1 twice"),
        (b"\x1c" * 40, "too deeply"),
        (b"\x16" + b"\xff" * 10 + b"\x00\x00", "64 bits"),
        (b"\x19\xf5\xff\xff\xff\x7f\x00", "longer than"),
    ],
)
def test_a_struct_that_none_writes_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_struct(content)
