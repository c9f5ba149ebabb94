"""The text of an approval question: the removals, and the way to restore them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from airflow_dags.engine import Engine
from airflow_dags.files import page_address
from airflow_dags.steps import Counts

_SECOND = 1_000_000_000


def question(engine: Engine, stream: str, plan: Counts) -> str:
    """The text about the planned removals for a person, as Markdown."""
    removed = "rows" if "rows" in plan else "messages"
    return "\n".join(
        [
            f"{stream}: {plan['needs_approval']}.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in _rows(engine, plan)),
            "",
            *(f"Guard: the pass {sentence}; this run continues.\n" for sentence in plan["guards"]),
            "Approval covers these numbers: if `apply` would remove more, it removes nothing. After Reject, the stream "
            "is kept as it is.",
            "",
            f"Within {plan['grace']} (`grace`) `{engine.command('undo', 'RUN')}` restores the {removed}; `apply` "
            "returns the command with the run's name.",
        ]
    )


def is_shown(text: str, kept: Path) -> bool:
    """Whether Airflow shows this question, and not an earlier one of the same task and run.

    A cleared task keeps its first question, because Airflow never replaces the text.

    Args:
        text: the question.
        kept: the file with the text of the first question; written here if this is the first.
    """
    try:
        with kept.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return kept.read_text(encoding="utf-8") == text
    return True


def instant(ns: int) -> str:
    """An instant for people, UTC, rounded down to the second.

    >>> instant(1_767_225_600_999_999_999)
    '2026-01-01 00:00:00 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(ns // _SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # before the year 1 or after 9999
        return f"{ns} ns"


def _rows(engine: Engine, plan: Counts) -> Iterator[tuple[str, str]]:
    yield from ((name, f"{plan[name]:,}") for name in ("messages", "rows") if name in plan)
    for rule, count in plan["by_rule"].items():
        yield f"by `{rule}`", f"{count:,}"
    yield "bytes", f"{plan['bytes']:,}"
    extent = plan.get("extent")
    if extent is not None:
        if extent["first_seq"] is not None:
            yield "sequences", f"{extent['first_seq']:,} to {extent['last_seq']:,}"
        latest = "" if extent["is_exact"] else "at the latest "
        yield "oldest", instant(extent["oldest_ns"])
        yield "newest", f"{latest}{instant(extent['newest_ns'])}"
    yield "as of", instant(plan["as_of_ns"])
    yield "report", f"`{plan['report']}`"
    if address := page_address(engine, Path(plan["report"])):
        yield "page", f"[{address}]({address})"
