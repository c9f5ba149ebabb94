from __future__ import annotations

import io
import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.storage.row_groups import cut_pages as module
from retention.storage.row_groups.cut_pages import cut_pages
from retention.storage.row_groups.footer import UnknownLayoutError, read_footer
from retention.storage.row_groups.join import JoinedFile
from retention.storage.row_groups.pages import PlainPage, count_plain_pages, plain_pages
from retention.storage.row_groups.stored_group import load_group, load_pages
from tests.support.laws import law

VALUES = [b"a", b"", b"ccc" * 9, None, b"dd", None, b"e" * 40, b"f"]
LENGTHS = np.array([len(value or b"") for value in VALUES])


def stored(values: Sequence[bytes | None], page_bytes: int = 1 << 20) -> bytes:
    """A Parquet file of one row group with these values."""
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"value": pa.array(values, pa.binary())}),
        sink,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        data_page_size=page_bytes,
        write_batch_size=1,
    )
    return sink.getvalue()


def column_of(file: bytes) -> tuple[pa.Buffer, list[PlainPage]]:
    source = pa.BufferReader(file)
    footer = read_footer(source)
    chunk = load_pages(source, footer, 0, 0)
    return chunk, plain_pages(memoryview(chunk), load_group(source, footer, 0).rows)


def cut(file: bytes, keeps: np.ndarray, lengths: np.ndarray) -> pq.ParquetFile:
    """A file with the values of another one that are kept."""
    sink, kept = io.BytesIO(), pa.nulls(int(keeps.sum()), pa.binary()).to_pylist()
    with pa.BufferReader(stored(kept)) as source:
        footer = read_footer(source)
        joined = JoinedFile(sink)
        chunk, pages = column_of(file)
        joined.add_with_pages(
            load_group(source, footer, 0), 0, cut_pages(chunk, pages, keeps, lengths)
        )
        joined.finish(footer.fields)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()), page_checksum_verification=True)


@law
@given(data=st.data())
def test_cut_pages_have_the_values_that_are_kept(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=60))
    keeps = np.array(data.draw(st.lists(st.booleans(), min_size=60, max_size=60))[: len(values)])
    keeps[data.draw(st.integers(0, len(values) - 1))] = True
    wrong = data.draw(st.sampled_from((0, 5, -(2**40))))
    lengths = np.array([len(value or b"") + wrong for value in values])
    lengths[:: data.draw(st.sampled_from((1, 2, 60)))] += data.draw(
        st.sampled_from((0, 1, -7, 2**62))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAGE_BYTES", data.draw(st.sampled_from((1, 50, 1 << 20))))
        made = cut(stored(values, data.draw(st.sampled_from((1, 100, 1 << 20)))), keeps, lengths)
    wanted = [value for value, is_kept in zip(values, keeps, strict=True) if is_kept]
    assert made.read()["value"].to_pylist() == wanted
    assert made.metadata.row_group(0).column(0).num_values == len(wanted)


def test_a_page_that_loses_nothing_has_the_bytes_of_arrow() -> None:
    values = [value or b"" for value in VALUES]
    chunk, pages = column_of(stored(values))
    [made] = cut_pages(chunk, pages, np.full(len(VALUES), fill_value=True), LENGTHS)
    assert b"".join(made.parts) == chunk.to_pybytes()


def test_pages_grow_to_the_length_of_a_page() -> None:
    values = [b"x" * 1_000] * 3_000
    chunk, pages = column_of(stored(values, 10_000))
    assert len(pages) > 200
    keeps = np.arange(3_000) % 2 == 0
    made = list(cut_pages(chunk, pages, keeps, np.full(3_000, 1_000)))
    assert [each.count for each in made] == [1, 1]
    content = b"".join(part for each in made for part in each.parts)
    assert count_plain_pages(memoryview(content), 1_500) == 2


def test_pages_of_empty_values_end_too() -> None:
    chunk, pages = column_of(stored([b""] * 41_000, 10_000))
    every = np.full(41_000, fill_value=True)
    made = cut_pages(chunk, pages, every, np.zeros(41_000, np.int64))
    assert len(list(made)) == 3


def damaged(at: int, by: int = 1) -> tuple[pa.Buffer, list[PlainPage]]:
    """A column whose only page has another content, with the checksum of that content."""
    chunk, [page] = column_of(stored(VALUES))
    codec = pa.Codec("zstd")
    stored_page = chunk.slice(page.begin, page.end - page.begin)
    content = bytearray(codec.decompress(stored_page, page.decoded_bytes, asbytes=True))
    content[at] = (content[at] + by) % 256
    other = codec.compress(bytes(content))
    checksum = zlib.crc32(other)
    return other, [page._replace(begin=0, end=other.size, checksum=checksum)]


@pytest.mark.parametrize(
    ("at", "by", "what"),
    [
        (0, 200, "levels of a page are cut off"),
        (0, 255, "levels of a page are damaged"),
        (4, 253, "levels of a page are damaged"),
        (6, 200, "a value is cut off"),
        (6, 1, "a value is cut off|shorter or longer"),
    ],
)
def test_damaged_values_are_named(at: int, by: int, what: str) -> None:
    chunk, pages = damaged(at, by)
    with pytest.raises(UnknownLayoutError, match=what):
        list(cut_pages(chunk, pages, np.full(len(VALUES), fill_value=True), LENGTHS))


def test_another_checksum_is_named() -> None:
    chunk, [page] = column_of(stored(VALUES))
    other = page._replace(checksum=page.checksum ^ 1)
    with pytest.raises(UnknownLayoutError, match="the checksum of a page"):
        list(cut_pages(chunk, [other], np.full(len(VALUES), fill_value=True), LENGTHS))
