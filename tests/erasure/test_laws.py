"""Any string in a file of this engine's own writers is found, wherever it is, and no other."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention import open_warehouse
from retention.erasure.encodings import MIN_BYTES
from retention.erasure.needles import needles_of_rows
from retention.erasure.readable import PIECE_BYTES
from retention.erasure.search import search
from tests.support.erasing import parquet_of
from tests.support.laws import law, law_on_disk

TOKENS = st.text("ab.\u00e9\"\\/%&<'\n\U0001f600", min_size=4, max_size=50)
VALUES = st.binary(min_size=1, max_size=50) | TOKENS.map(str.encode)
PARQUET = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "write_statistics": st.booleans(),
        "data_page_size": st.sampled_from([16, 1 << 20]),
        "row_group_size": st.sampled_from([2, 1000]),
    }
)


def is_found(directory: str, value: bytes) -> bool:
    removed = pa.table({"payload": pa.array([value], pa.binary())})
    return not search([directory], needles_of_rows([removed])).is_clean


@law
@given(st.lists(VALUES, min_size=1, max_size=30), st.integers(0, 29), VALUES, PARQUET)
def test_a_value_of_a_parquet_file_is_found_and_no_other(
    values: list[bytes], place: int, other: bytes, options: dict[str, object]
) -> None:
    """The judge is `in`, on the values; the rest of the file has none of their letters together."""
    values[place % len(values)] += b"-planted-0123"
    with tempfile.TemporaryDirectory() as directory:
        content = parquet_of(pa.array(values, pa.binary()), **options)
        Path(directory, "0").write_bytes(content)
        assert all(is_found(directory, value) for value in values if len(value) >= MIN_BYTES)
        longer = b"absent\x02\x03\x04\x05\x06\x07" + other
        assert is_found(directory, longer) == any(longer in value for value in values)


@law
@given(st.text(min_size=MIN_BYTES, max_size=60), st.booleans(), st.text(max_size=20))
def test_a_string_of_a_json_record_is_found_and_no_other(
    text: str, ensure_ascii: bool, before: str
) -> None:
    value = text.encode(errors="surrogatepass")
    record = {"n": 1, "request": {"subjects": [before + text]}}
    with tempfile.TemporaryDirectory() as directory:
        written = json.dumps(record, ensure_ascii=ensure_ascii)
        Path(directory, "0").write_bytes(written.encode(errors="surrogatepass"))
        assert is_found(directory, value)
        assert not is_found(directory, b"absent\x00" + value)


@law
@given(st.binary(min_size=MIN_BYTES, max_size=60), st.integers(0, 3), st.integers(0, 3))
def test_a_value_is_found_at_any_place_of_a_piece(value: bytes, gap: int, before: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = PIECE_BYTES - before * len(value) // 3 + gap
        Path(directory, "0").write_bytes(b"\xaa" * place + value + b"\xaa" * gap)
        assert is_found(directory, value)


@law_on_disk
@given(
    st.lists(
        st.tuples(st.text("abz09\u00e9", min_size=12, max_size=40), st.binary(min_size=12)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["delta", "parquet"]),
)
def test_each_message_of_a_stream_is_found_below_its_warehouse(
    messages: list[tuple[str, bytes]], kind: str
) -> None:
    """Data files, their records and the log, as this engine writes them."""
    with tempfile.TemporaryDirectory() as directory:
        config = {
            "warehouse": ".",
            "defaults": {"format": kind},
            "streams": [{"name": "A", "subjects": ["law.>"]}],
        }
        Path(directory, "retention.yaml").write_text(json.dumps(config))
        stream = open_warehouse(directory, engine="local").new_stream("A")
        subjects = [f"law.{token}" for token, _ in messages]
        payloads = pa.array([payload for _, payload in messages], pa.binary())
        stream.append(pa.table({"subject": subjects, "payload": payloads}))
        for subject, payload in zip(subjects, payloads.to_pylist(), strict=True):
            removed = pa.table({"subject": [subject], "payload": pa.array([payload], pa.binary())})
            findings = search([directory], needles_of_rows([removed])).findings
            assert {finding.kind for finding in findings} == {"subject", "payload"}
        absent = pa.table({"subject": ["law.absent.0123456789"]})
        assert search([directory], needles_of_rows([absent])).is_clean
