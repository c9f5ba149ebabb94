from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from retention.core.bounds import Bounds
from retention.core.outcomes import Outcome
from retention.core.policy import Policy
from retention.core.units import DAY, HOUR
from retention.history.report import RunReport
from retention.inspect.lag import Lag
from retention.inspect.state import State
from retention.plan.estimate_bounds import Estimate
from retention.plan.explanation import Explanation
from retention.plan.forecast import Due, Forecast
from retention.plan.plan import Plan
from retention.views.html import explanation_html, plan_html, report_html, state_html
from retention.views.json_entries import plan_entry
from retention.views.segment_groups import groups_of
from retention.views.text import (
    MOST_GROUPS,
    estimate_text,
    explanation_text,
    plan_text,
    report_text,
    state_text,
)
from retention.views.text_forecast import due_text
from retention.views.wording import brief_duration, brief_instant
from tests.support.worlds import Message, World, plan_of

NOW = 100 * DAY
REPORT = RunReport(
    run="20260101T000000.0Z-abc",
    stream="A<B",
    plan_id="f" * 64,
    as_of_ns=NOW,
    removed_messages=1234,
    removed_bytes=2048,
    by_rule={"max_age": 1234},
    segments={"dropped": 2, "rewritten": 1, "kept": 3},
    files_read=1,
    bytes_read=10,
    bytes_written=20,
    seconds=0.5,
    version_before=1,
    version_after=2,
)
STATE = State("A", 5, 100, 1, 9, 0, NOW, 2, 1, Lag(3, 60), "delta", 4)
EXPLANATION = Explanation(
    stream="A",
    partition=0,
    seq=7,
    subject="a.<b>",
    ts_ns=0,
    size=10,
    goes=True,
    rule="max_age",
    sentence="A 7 goes: <old>.",
    arithmetic=("old", "new"),
)


def world(segments: int, each: int = 2) -> World:
    """Segments of a day, messages half a day apart from day 0 on, with subjects in turn."""
    files = []
    for number in range(segments):
        first = number * each + 1
        messages = tuple(
            Message(seq, "ab"[seq % 2], (seq - 1) * DAY // each, 10, never=False)
            for seq in range(first, first + each)
        )
        files.append((first, messages))
    return World(tuple(files), files[-1][0])


def test_a_dropped_segment_names_the_rule_and_its_youngest_message() -> None:
    plan = plan_of(world(3), Policy(max_age_ns=2 * DAY), 3 * DAY)
    assert (
        plan_text(plan)[1] == "  segment 1: remove 2 messages: max_age 2d, youngest is 2d 12h old"
    )


def test_a_rewritten_segment_says_how_many_of_its_messages_go() -> None:
    plan = plan_of(world(3), Policy(max_age_ns=2 * DAY), 2 * DAY)
    assert plan_text(plan)[1] == (
        "  segment 1: remove 1 of 2 messages: max_age 2d, stored by 1970-01-01T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(max_msgs=4), "max_msgs 4, 4 or more are newer"),
        (Policy(max_bytes=40), "max_bytes 40 B, exceeded together with everything newer"),
        (
            Policy(max_msgs_per_subject=2),
            "max_msgs_per_subject 2, 2 or more on the subject are newer",
        ),
    ],
)
def test_every_rule_has_its_reason(policy: Policy, reason: str) -> None:
    (group,) = groups_of(plan_of(world(3), policy, NOW))
    assert group.line == f"segment 1: remove 2 messages: {reason}"


def test_neighbours_that_go_by_the_same_rules_are_one_group() -> None:
    (group,) = groups_of(plan_of(world(5), Policy(max_age_ns=DAY), NOW))
    assert group.segments == "segments 1 … 9 (5)"
    assert group.removed == 10


def test_two_rules_in_one_segment_are_counted_apart() -> None:
    plan = plan_of(world(2), Policy(max_msgs=3, max_age_ns=DAY), NOW)
    first, second = groups_of(plan)
    assert first.line.startswith("segment 1: remove 2 messages: 1 by max_msgs 3, ")
    assert "; 1 by max_age 1d, " in first.line
    assert second.segments == "segment 3"


def test_programs_get_the_reasons_of_each_group() -> None:
    plan = plan_of(world(5), Policy(max_msgs=3, max_age_ns=3 * DAY), NOW)
    entry = plan_entry(Outcome(plan.header.stream, plan))
    assert sum(group["removed_messages"] for group in entry["groups"]) == plan.removed_messages
    first = entry["groups"][0]
    assert [first[name] for name in ("partition", "first_segment", "segments")] == [0, 1, 3]
    assert sum(first["by_rule"].values()) == first["removed_messages"] == first["messages"] == 6
    assert "max_msgs 3, " in first["reasons"][0]


def test_many_groups_are_summed_up() -> None:
    plan = plan_of(world(40, each=3), Policy(max_msgs_per_subject=1), 0)
    many = plan_of(_alternating(40), Policy(max_msgs_per_subject=1), 0)
    assert len(groups_of(many)) > MOST_GROUPS
    lines = plan_text(many)
    shown = sum(group.removed for group in groups_of(many)[:MOST_GROUPS])
    left = many.removed_messages - shown
    assert (
        lines[-2]
        == f"  and {len(groups_of(many)) - MOST_GROUPS} more groups of segments: remove {left} messages"
    )
    assert f"and {len(groups_of(many)) - MOST_GROUPS} more" in plan_html(many)
    assert len(plan_text(plan)) < len(lines)


def _alternating(segments: int) -> World:
    """Every segment keeps its one message with a unique subject."""
    files = []
    for number in range(segments):
        seq = 2 * number + 1
        pair = (
            Message(seq, "same", 0, 10, never=False),
            Message(seq + 1, f"own{number}", 0, 10, never=False),
        )
        files.append((seq, pair))
    return World(tuple(files), files[-1][0])


def test_an_empty_plan_says_so() -> None:
    plan = plan_of(world(2), Policy(), NOW)
    assert plan_text(plan) == ["WORLD: nothing to remove as of 1970-04-11T00:00:00Z"]
    assert "2 kept" in plan_html(plan)


def test_the_sums_of_a_plan_stand_in_its_first_line() -> None:
    plan = plan_of(world(3), Policy(max_msgs=4), NOW)
    assert (
        plan_text(plan)[0]
        == "WORLD: would remove 2 messages (20 B) as of 1970-04-11T00:00:00Z: 2 by max_msgs"
    )
    assert plan_text(plan)[-1] == "  1 dropped, 0 rewritten, 2 kept segments"


def test_reports_states_explanations_and_estimates_are_text() -> None:
    assert report_text(REPORT)[0] == "A<B: removed 1,234 messages (2 KiB): 1,234 by max_age"
    assert report_text(replace(REPORT, removed_messages=0)) == [
        "A<B: removed nothing as of 1970-04-11T00:00:00Z"
    ]
    assert state_text(STATE)[2] == "  2 subjects, 1 segment; at least 3 messages (60 B) to remove"
    assert STATE.lag is not None
    unsized = replace(STATE, lag=replace(STATE.lag, bytes=0))
    assert state_text(unsized)[2].endswith("; at least 3 messages to remove")
    empty = replace(STATE, messages=0, first_ts_ns=None, last_ts_ns=None)
    assert state_text(empty) == ["A: empty; the next message gets sequence 10"]
    assert explanation_text(EXPLANATION) == ["A 7 goes: <old>.", "  new"]
    one, some = Bounds(1, 1), Bounds(1, 5)
    bounds = Estimate("A", NOW, some, some, {"max_age": some}, {"dropped": one}, one, one, one)
    assert estimate_text(bounds)[0] == (
        "A: would remove 1 to 5 messages as of 1970-04-11T00:00:00Z: 1 to 5 by max_age"
    )


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        (None, "contradicts itself"),
        (Lag(0, 0), "up to date"),
        (Lag(1, 9), "at least 1 message (9 B)"),
    ],
)
def test_a_state_says_how_far_it_is_behind(lag: Lag | None, text: str) -> None:
    assert text in state_text(replace(STATE, lag=lag))[2]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (31 * DAY + 2 * HOUR + 5, "31d 2h"),
        (31 * DAY, "31d"),
        (90 * 10**9, "1m 30s"),
        (1_500_000, "1.5ms"),
        (-2 * DAY, "-2d"),
        (0, "0s"),
    ],
)
def test_durations_are_brief(ns: int, text: str) -> None:
    assert brief_duration(ns) == text


def test_instants_are_brief() -> None:
    assert brief_instant(999_999_999) == "1970-01-01T00:00:00Z"


class Page(HTMLParser):
    """A parser that checks nesting, and collects elements that load or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.foreign: list[str] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.foreign += [tag] if tag in {"script", "link", "img", "style", "iframe"} else []
        self.foreign += [
            name for name, value in attrs if name != "style" or "url(" in (value or "")
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data


def plans() -> list[Plan]:
    return [plan_of(world(5), Policy(max_age_ns=DAY), NOW), plan_of(world(1), Policy(), NOW)]


@pytest.mark.parametrize(
    "text",
    [
        *map(plan_html, plans()),
        report_html(REPORT),
        explanation_html(EXPLANATION),
        state_html(STATE),
    ],
)
def test_html_is_whole_and_stands_alone(text: str) -> None:
    page = Page(text)
    assert page.open == []
    assert page.foreign == []


def test_html_says_what_the_text_says_and_escapes_it() -> None:
    assert "1,234" in Page(report_html(REPORT)).said
    assert "A<B" in Page(report_html(REPORT)).said
    assert "A 7 goes: <old>." in Page(explanation_html(EXPLANATION)).said
    assert "youngest is 95d" in Page(plan_html(plans()[0])).said


def due(days: int, least: int, most: int) -> Due:
    return Due(NOW + days * DAY, least, most, least * 10, most * 10)


@pytest.mark.parametrize(
    ("ahead", "text"),
    [
        (Forecast(None, (due(0, 0, 0), due(1, 0, 0))), "nothing due"),
        (
            Forecast(
                NOW + HOUR, (due(0, 0, 0), due(1, 1, 1), due(7, 1, 1), due(30, 12_000, 15_400))
            ),
            "next due 1970-04-11T01:00:00Z, due within 1d: 1 message (10 B), "
            "due within 30d: 12,000 to 15,400 messages (117.19 KiB to 150.39 KiB)",
        ),
        (
            Forecast(NOW, (due(0, 0, 2), due(1, 2, 2))),
            "due now: 0 to 2 messages (0 B to 20 B), due within 1d: 2 messages (20 B)",
        ),
    ],
)
def test_it_is_said_what_is_due_when(ahead: Forecast, text: str) -> None:
    assert due_text(ahead) == text
    state = replace(STATE, forecast=ahead)
    assert state_text(state)[3] == f"  {text}"
    assert text in state_html(state)
    quiet = replace(plan_of(world(2), Policy(), NOW), forecast=ahead)
    assert plan_text(quiet)[-1] == f"  {text}"
    assert text in plan_html(quiet)


def test_a_plan_counts_what_goes_in_what_goes_later() -> None:
    plan = plan_of(world(3), Policy(max_msgs=4), NOW)
    ahead = Forecast(NOW, (due(0, 2, 2), due(1, 2, 2), due(7, 3, 4)))
    text = "due within 7d, these included: 3 to 4 messages (30 B to 40 B)"
    assert plan_text(replace(plan, forecast=ahead))[-1] == f"  {text}"
    assert text in plan_html(replace(plan, forecast=ahead))
    assert "counting" not in plan_html(plan)
