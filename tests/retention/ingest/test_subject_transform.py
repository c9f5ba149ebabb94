from __future__ import annotations

import pyarrow as pa
import pytest

from retention.config.nested import SubjectTransform
from retention.config.subject_mapping import is_mapping
from retention.errors import RefusedError
from retention.ingest.subject_transform import mapped

TRANSFORMS: dict[tuple[str, str], dict[str, str]] = {
    ("o.*.*", "x.$2.{{wildcard(1)}}"): {"o.a.b": "x.b.a", "o.a": "o.a", "p.a.b": "p.a.b"},
    ("o.*.*", "x.$0.$1"): {"o.a.b": "x.o.a"},
    ("o.*.>", "x.{{ Wildcard( 1 ) }}.>"): {"o.a.b.c": "x.a.b.c", "o.a.b": "x.a.b"},
    (">", "x.>"): {"a": "x.a", "a.b": "x.a.b"},
    ("", "x.{{partition(10)}}.>"): {"a": "x.0.a", "a.b": "x.2.a.b"},
    ("o.*", "{{partition(3,1)}}"): {"o.a": "1", "o.b": "1", "o.é": "0"},
    ("o.*.*", "{{partition(5, 2, 1)}}.{{Partition(0,1)}}"): {"o.a.b": "3.0", "o.b.a": "1.0"},
    ("o.*", "{{partition(7,0)}}.{{partition(-3,1)}}"): {"o.a": "0.3826002220"},
    ("o.a", "x.{{partition(10)}}"): {"o.a": "x.1", "o.b": "o.b"},
    ("o.*", "{{split(1,-)}}"): {
        "o.a-b": "a.b",
        "o.ab": "ab",
        "o.-a-": "a",
        "o.a--b": "a.b",
        "o.--a": ".a",
        "o.-": "",
    },
    ("o.*", "{{split(1,)}}"): {"o.aéb": "a.é.b"},
    ("o.*", "{{splitFromLeft(1,2)}}"): {"o.abcde": "ab.cde", "o.ab": "ab", "o.a": "a"},
    ("o.*", "{{SplitFromRight(1,2)}}"): {"o.abcde": "abc.de", "o.ab": "ab"},
    ("o.*", "{{slicefromleft(1,2)}}"): {"o.abcde": "ab.cd.e", "o.abcd": "ab.cd", "o.ab": "ab"},
    ("o.*", "{{SliceFromRight(1,2)}}"): {"o.abcde": "a.bc.de", "o.abcd": "ab.cd", "o.a": "a"},
    ("o.*", "{{left(1,2)}}.{{right(1,3)}}"): {"o.abcde": "ab.cde", "o.ab": "ab.ab"},
    ("o.*", "{{left(1,0)}}.{{right(1,-1)}}.{{slicefromleft(1,-2)}}"): {"o.ab": "ab.ab.ab"},
    ("o.*", "x.$JS.{{random(1)}}.{{random(0)}}"): {"o.a": "x.$JS.0.0"},
}
"""Source and destination → subject → its name. `tests/live/test_subject_transforms.py` evaluates them on a server."""


def renamed(source: str, destination: str, *subjects: str) -> list[str]:
    transform = SubjectTransform(src=source, dest=destination)
    names: list[str] = mapped("S", pa.chunked_array([pa.array(subjects)]), [transform]).to_pylist()
    return names


@pytest.mark.parametrize("transform", TRANSFORMS, ids=" to ".join)
def test_subjects_are_renamed(transform: tuple[str, str]) -> None:
    assert is_mapping(*transform)
    subjects = TRANSFORMS[transform]
    assert renamed(*transform, *subjects) == list(subjects.values())


def test_random_draws_for_each_message() -> None:
    drawn = renamed("o.*", "{{random(3)}}", *["o.a"] * 200)
    assert {*drawn} == {"0", "1", "2"}


@pytest.mark.parametrize("function", ["left(1,1)", "splitfromright(1,1)", "slicefromleft(1,1)"])
def test_a_character_that_is_cut_is_named(function: str) -> None:
    with pytest.raises(RefusedError, match=r"of 'o.éé', which is not UTF-8"):
        renamed("o.*", f"{{{{{function}}}}}", "o.éé")
