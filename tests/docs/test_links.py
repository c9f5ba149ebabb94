"""Links of pages, the pages and headings that code names, and the site that is built of them."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
_IN_CODE = re.compile(r"\bdocs/([\w/-]+\.md)(?:#([\w-]+))?")
_NOT_IN_HEADINGS = re.compile(r"[^\w\- ]")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "") for heading in headings
    ]
    return frozenset(
        _NOT_IN_HEADINGS.sub("", heading.lower()).replace(" ", "-") for heading in plain
    )


def dead_links(page: Path) -> Iterator[str]:
    for path, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path) if path else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: {path}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{page.relative_to(ROOT)}: {path}#{anchor}"


def test_links_between_pages_lead_to_files_and_headings() -> None:
    assert [dead for page in PAGES for dead in dead_links(page)] == []


def test_headings_of_a_page_differ_so_that_each_has_its_anchor() -> None:
    """Code hosts and the site number repeated headings differently."""
    linked = {
        ((page.parent / path).resolve() if path else page, anchor)
        for page in PAGES
        for path, anchor in _LINK.findall(page.read_text(encoding="utf-8"))
        if anchor and (not path or path.endswith(".md"))
    }
    for page, anchor in linked:
        text = _FENCED.sub("", page.read_text(encoding="utf-8"))
        headings = Counter(re.findall(r"^#+ (.*)$", text, re.MULTILINE))
        alike = [
            head
            for head in headings
            if _NOT_IN_HEADINGS.sub("", head.lower()).replace(" ", "-") == anchor
        ]
        assert sum(headings[head] for head in alike) == 1, f"{page.name}#{anchor}"


def test_pages_and_headings_that_code_names_exist() -> None:
    sources = [file for top in ("retention", "jobs", "airflow_dags", "scripts", "tests", "monitoring") for file in
               (ROOT / top).rglob("*.py")]  # fmt: skip
    dead = [
        f"{file.relative_to(ROOT)}: docs/{path}#{anchor}"
        for file in sources
        for path, anchor in _IN_CODE.findall(file.read_text(encoding="utf-8"))
        if not (ROOT / "docs" / path).exists()
        or (anchor and anchor not in anchors(ROOT / "docs" / path))
    ]
    assert dead == []


class _Requests(HTMLParser):
    """The addresses that a browser loads by itself with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        loads = tag in ("script", "img", "iframe", "source") or (
            tag == "link" and values.get("rel") not in ("canonical", "next", "prev")
        )
        address = values.get("src") or values.get("href")
        if loads and address:
            self.addresses.append(address)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    built = subprocess.run(
        [ROOT / ".venv/bin/mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    loaded = {}
    for page in (tmp_path / "site").rglob("*.html"):
        requests = _Requests()
        requests.feed(page.read_text(encoding="utf-8"))
        elsewhere = [each for each in requests.addresses if re.match(r"(\w+:)?//", each)]
        missing = [
            each
            for each in requests.addresses
            if not elsewhere and not (page.parent / each.split("?")[0].split("#")[0]).exists()
        ]
        loaded[page.name] = elsewhere + (missing if page.name != "404.html" else [])
    assert {page: addresses for page, addresses in loaded.items() if addresses} == {}
    sheets = "".join(
        sheet.read_text(encoding="utf-8") for sheet in (tmp_path / "site").rglob("*.css")
    )
    assert not re.search(r"url\(['\"]?(https?:)?//", sheets)
