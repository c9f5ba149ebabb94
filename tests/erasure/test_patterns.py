"""The index of patterns agrees with `bytes.find`, at every stride and for any strings."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.erasure import patterns as patterns_module
from retention.erasure.encodings import FORMS, MIN_BYTES, RAW, Strings
from retention.erasure.patterns import PatternIndex
from tests.support.laws import law

LETTERS = st.binary(min_size=MIN_BYTES, max_size=70) | st.text(
    "ab", min_size=MIN_BYTES, max_size=40
).map(str.encode)


def matches(strings: list[bytes], content: bytes) -> set[tuple[bytes, int]]:
    index = PatternIndex(pa.array(strings, pa.large_binary()), (RAW,))
    is_done = np.zeros(index.patterns, bool)
    return {(strings[match.string], match.offset) for match in index.matches(content, is_done)}


def occurrences(strings: list[bytes], content: bytes) -> set[tuple[bytes, int]]:
    return {
        (string, match.start())
        for string in strings
        for match in re.finditer(b"(?=" + re.escape(string) + b")", content)
    }


@law
@given(
    st.lists(LETTERS, min_size=1, max_size=20, unique=True),
    st.lists(st.integers(0, 30), max_size=15),
    st.lists(LETTERS, max_size=15),
    st.integers(1, 5),
    st.integers(40, 400),
)
def test_it_agrees_with_find(
    strings: list[bytes], chosen: list[int], other: list[bytes], stride: int, block: int
) -> None:
    """Strings of the index, whole or cut, among others, with blocks so small that matches cross them."""
    pieces = [strings[number % len(strings)][: len(other) or None] for number in chosen]
    content = b"".join(piece for pair in zip(pieces, [*other, *strings]) for piece in pair)  # noqa: B905
    content += b"".join(strings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns_module, "MAX_WINDOWS", stride * len(strings))
        patch.setattr(patterns_module, "_BLOCK", block)
        assert matches(strings, content) == occurrences(strings, content)


@law
@given(
    st.lists(LETTERS, min_size=1, max_size=6),
    st.lists(st.binary(min_size=1, max_size=7), min_size=2, max_size=2),
)
def test_each_form_of_each_string_is_in_what_others_write(
    strings: list[bytes], around: list[bytes]
) -> None:
    """Base64 of a longer content has the form of one of its alignments, in either alphabet."""
    before, after = around
    forms: dict[tuple[str, int], list[bytes]] = {}
    for form in FORMS:
        encoded, places = form.encode(Strings.of(pa.array(strings, pa.large_binary())))
        pieces = zip(places.tolist(), encoded.begins, encoded.lengths, strict=True)
        for place, begin, length in pieces:
            written = encoded.content[begin : begin + length].tobytes()
            forms.setdefault((form.name, place), []).append(written)
    for place, string in enumerate(strings):
        longer = before + string + after
        for name, write in (("base64", b64encode), ("base64url", urlsafe_b64encode)):
            some = [*forms[("base64", place)], *forms.get((name, place), [])]
            assert any(each in write(longer) for each in some)
        both = {string.hex().encode(), string.hex().upper().encode()}
        assert {*forms[("hex", place)]} == both
        assert forms[("raw", place)] == [string]


def test_strings_with_the_same_beginning_and_end_are_told_apart() -> None:
    strings = [f"customer.{number:06}.orders.created".encode() for number in range(5_000)]
    content = b"\n".join([*strings[17::100], b"customer.999999.orders.created"])
    assert {string for string, _ in matches(strings, content)} == {*strings[17::100]}


def test_more_candidates_than_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns_module, "_EXPANDED", 7)
    strings = [b"aaaaaaaaaaaaaaaa" + bytes([number]) for number in range(50)]
    content = b"".join(strings)
    assert matches(strings, content) == occurrences(strings, content)


def test_batches_of_few_bytes_index_all_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns_module, "_BATCH_BYTES", 100)
    monkeypatch.setattr(patterns_module, "_BATCH_STRINGS", 3)
    strings = [f"{number:012}".encode() * (1 + number % 20) for number in range(40)]
    assert matches(strings, b"#".join(strings)) == occurrences(strings, b"#".join(strings))


def test_a_done_pattern_is_not_matched() -> None:
    index = PatternIndex(pa.array([b"customer.0001", b"customer.0002"], pa.large_binary()), FORMS)
    is_done = index._string == 0
    content = b"customer.0001, customer.0002, " + b"customer.0001".hex().encode()
    assert [match.string for match in index.matches(content, is_done)] == [1]


@pytest.mark.parametrize("content", [b"", b"short", b"customer.000"])
def test_a_short_content_has_no_match(content: bytes) -> None:
    assert matches([b"customer.0001"], content) == set()
