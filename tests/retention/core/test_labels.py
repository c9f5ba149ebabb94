from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from retention.core.labels import Label, current_label, labelled, on_stream


def test_a_label_holds_for_its_block_and_is_put_back() -> None:
    with labelled(stream="ORDERS", run="r-1"):
        with labelled(step="copy rows"):
            assert current_label() == Label("ORDERS", "r-1", "copy rows")
        assert current_label() == Label("ORDERS", "r-1")
    with pytest.raises(ValueError, match="gone"), labelled(stream="ORDERS"):
        raise ValueError("gone")
    assert current_label() == Label()


def test_a_function_is_labelled_with_the_stream_that_it_is_given() -> None:
    @on_stream
    @labelled(step="look")
    def look(opened: SimpleNamespace, more: int) -> tuple[Label, int]:
        return current_label(), more

    assert look(SimpleNamespace(name="A"), more=3) == (Label("A", "", "look"), 3)
    assert look.__name__ == "look"


def test_threads_have_labels_of_their_own() -> None:
    def named(stream: str) -> str:
        with labelled(stream=stream):
            return current_label().text

    streams = [f"S{number}" for number in range(20)]
    with labelled(stream="OUTSIDE"), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(named, streams)) == [f"{stream}: work" for stream in streams]


@pytest.mark.parametrize(
    ("label", "text", "group"),
    [
        (Label("A", "r-1", "copy rows"), "A: copy rows (run r-1)", "r-1"),
        (Label("A", "", "read rows"), "A: read rows", "retention A"),
        (Label(), "work", "retention"),
        (Label("a\x1b[2J"), "a\\x1b[2J: work", "retention a\\x1b[2J"),
    ],
)
def test_a_label_is_words_for_people_and_an_id(label: Label, text: str, group: str) -> None:
    assert (label.text, label.group) == (text, group)
