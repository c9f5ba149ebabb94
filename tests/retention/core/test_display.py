from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from retention.core.display import Displayed, DisplayedDict, DisplayedList
from retention.core.markup import MOST_ROWS, table, text_table

DAY = 86_400 * 10**9


@dataclass(frozen=True, repr=False)
class ReclaimedReport(Displayed):
    stream: str = "A"
    messages: int = 12_345
    as_of_ns: int = 20_000 * DAY
    grace_ns: int = 7 * DAY
    bytes: int = 2048
    seconds: float = 0.5
    is_done: bool = True
    nothing: str = ""
    by_rule: dict[str, int] = field(default_factory=lambda: {"max_age": 3, "max_msgs": 0})


def test_a_value_shows_its_fields_for_people() -> None:
    assert repr(ReclaimedReport()) == (
        "reclaimed A: messages 12,345, as of 2024-10-04 00:00:00Z, grace 7d, size 2 KiB, seconds 0.50 s, is done yes, "
        "by rule max_age 3, max_msgs 0"
    )
    page = ReclaimedReport()._repr_html_()
    for text in ("2024-10-04 00:00:00Z", "12,345", "As of", "2 KiB", ">A</strong>"):
        assert text in page


def test_lists_and_records_stay_lists_and_dictionaries() -> None:
    rows = DisplayedList([ReclaimedReport()])
    record = DisplayedDict(stream="A", restored_messages=1_000)
    assert (rows, record["restored_messages"]) == ([ReclaimedReport()], 1000)
    assert json.loads(json.dumps(record)) == {"stream": "A", "restored_messages": 1000}
    assert repr(record) == "A: restored messages 1,000"
    assert repr(rows).splitlines()[0].split() == (
        ["stream", "messages", "as", "of", "grace", "size", "seconds", "is", "done", "by", "rule"]
    )
    assert repr(DisplayedList[int]()) == "none"
    assert ">none</strong>" in DisplayedList[int]()._repr_html_()


@pytest.mark.parametrize("name", ["<script>&'\"", "a\x1b[2J", "\u202egnp.exe", "x" * 65_536])
def test_a_hostile_name_is_escaped_and_cut_wherever_it_stands(name: str) -> None:
    record = DisplayedDict(stream=name, file=name, by_rule={name: 1}, notes=[name])
    for shown in (record, DisplayedList([ReclaimedReport(stream=name)])):
        for text in (repr(shown), shown._repr_html_()):
            assert not {"\x1b", "\u202e"} & set(text)
            assert len(text) < 8_000
        assert "<script>" not in shown._repr_html_()


def test_a_long_table_shows_its_first_rows_and_counts_the_others() -> None:
    rows = [(f"s{number}", f"{number}") for number in range(10_000)]
    page = table(("Stream", "Number"), rows, {1})
    assert page.count("<tr") == MOST_ROWS + 1
    assert "and 9,970 more" in page
    assert (
        "table-layout:auto" in page
    )  # JupyterLab fixes the layout of tables, which would lay columns on each other
    assert text_table(("STREAM", "N"), rows, {1})[-1] == "and 9,970 more"


def test_numbers_are_right_aligned() -> None:
    assert text_table(("A", "N"), [("x", "10"), ("yy", "5")], {1}) == ["A    N", "x   10", "yy   5"]
    assert "text-align:right" in table(("N",), [("1",)], {0})
