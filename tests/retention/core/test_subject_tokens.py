"""Keys as tokens: lossless, valid everywhere; in SQL only calls are expanded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.bucket_names import KEY_PATTERN
from retention.core.subject_tokens import (
    names_in,
    subject_key,
    subject_token,
    with_functions_expanded,
)
from retention.core.subjects import is_valid_subject
from retention.errors import UsageError


@given(st.one_of(st.text(), st.binary()))
def test_every_key_comes_back_and_its_token_is_valid_everywhere(key: str | bytes) -> None:
    token = subject_token(key)
    octets = key.encode() if isinstance(key, str) else key
    assert subject_key(token) == octets
    assert len(token) <= max(3 * len(octets), 1)
    assert is_valid_subject(token)
    assert "." not in token
    assert re.fullmatch(KEY_PATTERN, token)


@pytest.mark.parametrize("token", ["", "a b", "a.b", "=3", "=3a", "==", "a=", "=3A=", "ü", "%41"])
def test_what_no_key_has_as_its_token_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="is the token of no key"):
        subject_key(token)


def test_calls_are_expanded_and_texts_are_not() -> None:
    given = "concat('subject_token(', SUBJECT_TOKEN (coalesce(`a)b`, \"x)\")), my_subject_token(c))"
    expanded = with_functions_expanded(given)
    assert expanded.startswith("concat('subject_token(', regexp_replace(")
    assert "AS STRING" in expanded
    assert '((coalesce(`a)b`, "x)")) AS STRING' in expanded
    assert expanded.endswith(", my_subject_token(c))")
    assert "unhex" in with_functions_expanded("subject_key(subject_token(k))")
    assert with_functions_expanded("upper(k)") == "upper(k)"
    with pytest.raises(UsageError, match=r"subject_token\(k: a parenthesis is not closed"):
        with_functions_expanded("subject_token(k")


def test_names_of_columns_are_found_outside_of_texts() -> None:
    said = "concat('it''s.\\'name', subject_token(Key)) || `odd ``one` || after.id > 1.5e3 -- x"
    assert {"key", "odd ``one", "after", "id"} <= names_in(said)
    assert not names_in(said) & {"name", "s", "it"}
