from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import pytest

from retention.core.units import DAY, HOUR
from retention.inspect.log_report import LogReport, Overview, UndoOffer
from retention.inspect.run_summary import RunSummary
from retention.inspect.subject_sizes import SubjectSize
from retention.plots.charts import Chart
from retention.views.report_markdown import report_markdown
from retention.views.report_page import Section, WarehouseReport, report_page
from tests.support.run_records import run_record

HOSTILE = (
    "</td><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=HYPERLINK(A1)|`x`|@all",
    "a\u202eb\u0007\ufffe\n<b>",
    "x" * 65_536,
)
RUN = run_record(
    "r1",
    status="done",
    as_of_ns=9 * DAY,
    removed_messages=10,
    removed_bytes=100,
    by_rule={"max_age": 10},
    kept_messages=5,
    kept_bytes=50,
    segments={"dropped": 1, "rewritten": 0, "kept": 2},
    files_read=0,
    seconds=0.5,
    guards=[{"sentence": "removes 66%", "lifted": True}],
    reason="asked for",
)


class _Tags(HTMLParser):
    """The tags and the text of a page; every tag that needs it must be closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.shown = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.shown += data


def report(*overviews: Overview, sections: list[Section] | None = None) -> WarehouseReport:
    return WarehouseReport("/lake", 10 * DAY, overviews, sections or [])


def test_hostile_names_are_texts_of_a_page_that_asks_for_nothing() -> None:
    known = [
        Overview(name, "stream", 1, 2, HOUR, last=RunSummary(RUN, None), error=name if at else None)
        for at, name in enumerate(HOSTILE)
    ]
    details = LogReport(
        known[0],
        HOSTILE[0],
        None,
        [RunSummary(RUN, None)],
        [UndoOffer("r1", "`retention undo r1` restores it")],
        [SubjectSize(name, 1) for name in HOSTILE],
        refused=HOSTILE,
    )
    page = "".join(report_page(report(*known, sections=[Section(details)])))
    parsed = _Tags(page)
    assert not parsed.tags & {"script", "img", "link", "iframe", "b"} - {"b"}
    assert parsed.tags & {"b"} and "<b>" in parsed.shown  # noqa: PT018
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name == "src"]
    assert {value for name, value in parsed.attributes if name == "href"} == {"#s0"}
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert "\\u202e" in parsed.shown
    assert "\u202e" not in page
    assert len(page) < 300_000
    assert "retention undo r1" in parsed.shown
    markdown = "\n".join(report_markdown(report(*known)))
    rows = [line for line in markdown.splitlines() if line.startswith("| `")]
    assert len(rows) == len(HOSTILE)
    assert "<script>" not in markdown.replace("`</td><script>alert(1)</script>`", "")
    assert "``=HYPERLINK(A1)\\|`x`\\|@all``" in markdown
    assert len(markdown) < 10_000


def test_the_last_pass_has_its_numbers_cost_guards_and_reason() -> None:
    overview = Overview("S", "stream", 5, 50, 0, last=RunSummary(RUN, None))
    details = LogReport(overview, "a policy", None, [RunSummary(RUN, "r2")])
    shown = _Tags("".join(report_page(report(overview, sections=[Section(details)])))).shown
    for text in (
        "15messages before",
        "10removed (100 B)",
        "5messages after (50 B)",
        "1 dropped, 0 rewritten, 2 kept segments",
        "0.50 s",
        "the pass removes 66% (lifted by a person)",
        "Refusals were lifted, because: asked for",
        "apply, undone",
    ):
        assert text in shown


def test_ten_thousand_streams_are_rows_the_given_order_kept() -> None:
    known = [Overview(f"s{number}", "stream", number, number) for number in range(10_001)]
    page = "".join(report_page(report(*known)))
    assert re.findall(r'data-name="Name">([^<]+)<', page) == [f"s{at}" for at in range(1_000)]
    open_rows, folded_rows = page.split("<details><summary>950 less urgent ones</summary>")
    assert open_rows.count("<tr>") == 1 + 50
    assert "9,001 more are less urgent and not listed" in folded_rows
    assert len(page) < 500_000
    markdown = list(report_markdown(report(*known)))
    assert markdown[-1] == "9,971 more are less urgent: `retention state` lists all."
    assert len(markdown) < 50


def test_what_is_not_counted_is_named() -> None:
    for kind, text in (
        ("table", "The largest keys are not"),
        ("stream", "largest subjects are not"),
    ):
        details = LogReport(Overview("S", kind), "a policy", None, largest=None)
        page = "".join(report_page(report(details.overview, sections=[Section(details)])))
        assert text in page


def test_a_warehouse_without_streams_has_a_page() -> None:
    assert "lists no stream" in "".join(report_page(report()))
    assert list(report_markdown(report()))[2] == (
        "no streams (0 B), 0 behind the policy, as of 1970-01-11T00:00:00Z."
    )


def test_without_matplotlib_the_page_says_once_that_it_has_no_pictures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    overview = Overview("S", "stream", 1, 2)
    sections = [Section(LogReport(overview, "", None), [Chart("H", "C")])] * 2
    page = "".join(report_page(report(overview, sections=sections)))
    assert page.count("This report has no pictures: pictures are drawn by matplotlib") == 1
