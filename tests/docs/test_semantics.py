from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from retention.config.stream import StreamConfig
from retention.core.units import parse_duration
from retention.plan.plan import Plan
from retention.rules.jetstream.evaluate import ORDER
from tests.support.worlds import Message, World, plan_of

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"```yaml\n(?P<policy>[^`]*)```\n\n(?P<table>(?:\|.*\n)+)")
NOW_NS = 10**18
PAGES = ("limits.md", "ttl.md", "log-compaction.md")


def examples() -> list[tuple[str, list[dict[str, str]]]]:
    pages = [(DOCS / "semantics" / name).read_text() for name in PAGES]
    found = [match for page in pages for match in EXAMPLE.finditer(page)]
    return [(match["policy"], rows(match["table"])) for match in found]


def rows(table: str) -> list[dict[str, str]]:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def message(row: dict[str, str]) -> Message:
    ts_ns, ttl = NOW_NS - parse_duration(row.get("age", "1s")), row.get("ttl", "")
    return Message(
        seq=int(row["seq"]),
        subject=row["subject"],
        ts_ns=ts_ns,
        size=int(row.get("size", 100)),
        never=ttl == "never" or row.get("never") == "yes",
        deadline_ns=ts_ns + parse_duration(ttl) if ttl not in ("", "never") else None,
        deletes=row.get("does") == "deletes",
    )


def fates(plan: Plan) -> dict[int, str]:
    """Sequence → the rule that removes it, with one message per file."""
    first = plan.actions.files["min_seq"].to_pylist()
    return {first[row["file"]]: row["rule"] for row in plan.actions.rules.to_pylist()}


@pytest.mark.parametrize(("policy", "table"), examples())
def test_the_worked_examples_come_out_as_the_page_says(
    policy: str, table: list[dict[str, str]]
) -> None:
    config = StreamConfig(name="EXAMPLE", **YAML(typ="safe").load(policy))
    files = tuple((int(row.get("segment", 1)), (message(row),)) for row in table)
    gone = fates(plan_of(World(files, max(base for base, _ in files)), config.policy(), NOW_NS))
    for row in table:
        rule = gone.get(int(row["seq"]))
        assert row["what happens"] == (f"removed: {rule}" if rule else "kept"), row


def test_there_are_worked_examples_of_every_rule() -> None:
    told = {row["what happens"] for _, table in examples() for row in table}
    rules = {rule.name for rule in ORDER}
    assert told == {"kept", *(f"removed: {rule}" for rule in rules)}


def test_files_that_pages_name_exist() -> None:
    root = DOCS.parent
    named = re.compile(r"`((?:tests|retention|schemas|jobs|notebooks|scripts)/[\w/.]+)`")
    gone = [
        f"{page.name}: {path}"
        for page in [*DOCS.rglob("*.md"), root / "README.md"]
        for path in named.findall(page.read_text())
        if not (root / path).exists()
    ]
    assert not gone


def test_decisions_are_listed_with_their_numbers_titles_dates_and_states() -> None:
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    listed = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert len({page.name[:4] for page in pages}) == len(pages)
    for page in pages:
        title, _, state = page.read_text(encoding="utf-8").splitlines()[:3]
        dated = re.fullmatch(r"(\d{4}-\d\d-\d\d), ((?:accepted|superseded)[^:]*).*\.", state)
        assert dated, f"{page.name}: {state}"
        number, name = title.removeprefix("# ").split(". ", 1)
        line = f"| [{number}]({page.name}) | {dated[1]} | {name} | {dated[2].removesuffix('.')} |"
        assert number == page.name[:4]
        assert line in listed, line


def test_the_first_change_of_contributing_applies() -> None:
    page = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [change] = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    check = ["git", "apply", "--check", "-"]
    done = subprocess.run(
        check, cwd=DOCS.parent, input=change, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
