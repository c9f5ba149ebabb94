from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.subjects import (
    is_valid_filter,
    is_valid_name,
    is_valid_subject,
    matches,
    matching_mask,
    name_of_path,
    overlap,
    path_name,
    to_regex,
    valid_mask,
)
from retention.errors import UsageError

TOKENS = st.sampled_from(["a", "b", "a*", "*", ">", "é", "$x", "a>"])
FILTERS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join).filter(is_valid_filter)
SUBJECTS = FILTERS.filter(is_valid_subject)

MANY = 100
"""A column this long is matched by Arrow, a shorter one by Python."""
LITERALS = ["a", "a.b", "a.b*", "a.*b", "a.**", "a.>>", "é.ü", "a\x01b", "$JS.x", "x" * 65_535]
BROKEN = ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\rb", "a\nb", "a\fb", "é" * 32_768]
WILDCARDS = ["*", ">", "a.*", "*.a", "a.>", "a.*.>"]


@pytest.mark.parametrize("subject", LITERALS)
def test_a_literal_is_a_subject_and_a_filter(subject: str) -> None:
    assert is_valid_subject(subject)
    assert is_valid_filter(subject)


@pytest.mark.parametrize("subject", [*BROKEN, ">.a", "a.>.b"])
def test_a_broken_subject_is_neither(subject: str) -> None:
    assert not is_valid_subject(subject)
    assert not is_valid_filter(subject)


@pytest.mark.parametrize("subject", WILDCARDS)
def test_a_wildcard_is_a_filter_only(subject: str) -> None:
    assert not is_valid_subject(subject)
    assert is_valid_filter(subject)


def test_the_mask_of_valid_subjects_agrees_with_the_test_of_one() -> None:
    subjects = [*LITERALS, *BROKEN, *WILDCARDS, ">.a", "a.>.b"]
    expected = [is_valid_subject(subject) for subject in subjects]
    for times in (1, 1 + MANY // len(subjects)):
        assert valid_mask(pa.array(subjects * times)).to_pylist() == expected * times
        column = pa.chunked_array([subjects * times, [None]], pa.string())
        mask = valid_mask(column)
        assert isinstance(mask, pa.ChunkedArray)
        assert mask.to_pylist() == [*expected * times, False]


@pytest.mark.parametrize(
    ("subject_filter", "subject", "expected"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        ("a.*b", "a.xb", False),
        ("a.*b", "a.*b", True),
        ("*.b.>", "a.b.c", True),
        ("A", "a", False),
    ],
)
def test_wildcards_match_whole_tokens(subject_filter: str, subject: str, expected: bool) -> None:
    assert matches(subject_filter, subject) is expected
    assert bool(re.search(to_regex(subject_filter), subject)) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a.>", "a.b.*", True),
        ("a.*", "*.b", True),
        ("a.*", "a.*.b", False),
        ("a.>", "a", False),
        (">", "x", True),
        ("a.b", "a.b", True),
        ("a.*.c", "a.b.>", True),
        ("orders.>", "ordersx.>", False),
    ],
)
def test_two_filters_overlap_if_a_subject_matches_both(
    first: str,
    second: str,
    expected: bool,
) -> None:
    assert overlap(first, second) is expected
    assert overlap(second, first) is expected


@given(FILTERS, FILTERS, SUBJECTS)
def test_whatever_matches_two_filters_proves_that_they_overlap(
    first: str, second: str, subject: str
) -> None:
    if matches(first, subject) and matches(second, subject):
        assert overlap(first, second)


@given(st.lists(FILTERS, max_size=4), st.lists(SUBJECTS, max_size=6))
def test_the_mask_of_matches_agrees_with_the_test_of_one(
    filters: list[str], subjects: list[str]
) -> None:
    expected = [any(matches(one, subject) for one in filters) for subject in subjects]
    for nulls in (1, MANY):
        column = pa.chunked_array([subjects, [None] * nulls], pa.string())
        mask = matching_mask(column, filters)
        assert isinstance(mask, pa.ChunkedArray)
        assert mask.to_pylist() == [*expected, *[False] * nulls]


@pytest.mark.parametrize("name", ["ORDERS", "$x", "A:B", "é", "-", "x" * 255])
def test_names_may_hold_nearly_anything(name: str) -> None:
    assert is_valid_name(name)
    assert name_of_path(path_name(name)) == name


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "a>", "a/b", "a\\b", "a\n", "x" * 256])
def test_names_hold_no_separator_and_no_wildcard(name: str) -> None:
    assert not is_valid_name(name)


def test_every_byte_outside_the_safe_ones_is_escaped() -> None:
    assert path_name("A:é_-9%") == "A%3A%C3%A9_-9%25"


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_a_path_leads_back_to_its_name(name: str) -> None:
    assert name_of_path(path_name(name)) == name


@pytest.mark.parametrize("component", ["", "a:b", "%3a", "%41", "%", "%FF", "é"])
def test_a_component_that_no_name_has_is_refused(component: str) -> None:
    with pytest.raises(UsageError, match="not the path of a name"):
        name_of_path(component)
