from __future__ import annotations

import pyarrow as pa
import pytest

from retention.core.token_bytes import TokenBytes

PREFIX = b"$JS.ACK."


def tokens_of(*subjects: str | None) -> TokenBytes | None:
    return TokenBytes.of(pa.array(["$JS.ACK.x", *subjects], pa.string()).slice(1), PREFIX)


@pytest.mark.parametrize(
    "rests", [["a.b", "c", "d.e"], ["a", "b.c", "d"], ["a.b.c", "d"], ["d", "a.b.c"]]
)
def test_subjects_with_several_numbers_of_tokens_are_left_to_others(rests: list[str]) -> None:
    assert tokens_of(*(f"$JS.ACK.{rest}" for rest in rests)) is None


@pytest.mark.parametrize("subjects", [[], [None], ["$JS.ACK.a", None], ["a"], ["$JS.FCK.a"]])
def test_other_beginnings_are_left_to_others(subjects: list[str | None]) -> None:
    assert tokens_of(*subjects) is None


def test_tokens_are_those_between_dots() -> None:
    tokens = tokens_of("$JS.ACK.é..12", "$JS.ACK..x." + "7".zfill(19))
    assert tokens is not None
    assert tokens.count == 3
    assert [tokens.texts(place).to_pylist() for place in range(2)] == [["é", ""], ["", "x"]]
    numbers = tokens.numbers(2)
    assert numbers is not None
    assert numbers.tolist() == [12, 7]
    assert tokens.numbers(1) is None
