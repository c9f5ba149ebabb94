from __future__ import annotations

import random

from retention.core.filter_index import FilterIndex
from retention.core.subjects import overlap


def test_it_finds_what_a_look_at_every_filter_finds() -> None:
    chance = random.Random(1)

    def some_filter() -> str:
        tokens = [chance.choice("ab*") for _ in range(chance.randint(1, 3))]
        return ".".join([*tokens[:-1], ">"] if chance.random() < 0.3 else tokens)

    hits = 0
    for _ in range(2000):
        *filters, wanted = (some_filter() for _ in range(6))
        index = FilterIndex()
        for number, subject in enumerate(filters):
            index.add(subject, f"S{number}")
        first = next((pair for pair in enumerate(filters) if overlap(pair[1], wanted)), None)
        entry = index.first_overlap(wanted)
        assert (None if entry is None else (entry.number, entry.subject)) == first
        assert entry is None or entry.owner == f"S{entry.number}"
        hits += entry is not None
    assert 500 < hits < 2000


def test_a_filter_of_many_tokens_is_no_deeper_than_others() -> None:
    index = FilterIndex()
    deep = ".".join("a" * 20_000)
    index.add(deep, "DEEP")
    assert index.first_overlap(f"{deep}.b") is None
    entry = index.first_overlap(deep[:-1] + "*")
    assert entry is not None
    assert entry.owner == "DEEP"
