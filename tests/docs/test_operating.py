"""The pages on upgrades, backups, moves and recovery: each command has the documented output and exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from retention.cli.examples import MEANINGS
from retention.core.outcomes import UNEXPECTED
from retention.plan.plan import FORMAT_VERSION as PLAN_FORMAT
from retention.stores import archive_manifest, layout
from tests.support.pages import blocks, executed

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("upgrade", "backup", "move", "recover")


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_print_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an intended change, `ACCEPT=1 pytest tests/docs/test_operating.py` writes the new output into the pages."""
    page = DOCS / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "retention.yaml").write_text(blocks(text, "yaml")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert executed(page, tmp_path) == page.read_text(encoding="utf-8")


def test_the_page_on_upgrades_has_the_newest_format_versions() -> None:
    text = (DOCS / "upgrade.md").read_text(encoding="utf-8")
    versions = re.findall(r"^\| ([a-z' ]+?) \([^|]*\| [^|]*?(\d+)[^|\d]*\|", text, re.MULTILINE)
    assert dict(versions) == {
        "directory of a stream": str(layout.FORMAT_VERSION),
        "saved plan": str(PLAN_FORMAT),
        "manifest of an archive": str(archive_manifest.FORMAT_VERSION),
    }


def test_the_page_on_recovery_has_every_exit_code() -> None:
    text = (DOCS / "recover.md").read_text(encoding="utf-8")
    codes = re.findall(r"^## (\d+(?: and \d+)?):", text, re.MULTILINE)
    listed = {int(code) for codes_ in codes for code in codes_.split(" and ")}
    assert listed == {*MEANINGS, UNEXPECTED} - {0, 3}
