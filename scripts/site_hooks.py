"""Hooks of the site (mkdocs.yml): patterns in its navigation, and files outside docs/ that pages link to."""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[#)])")
"""The path of a relative link of a page."""


def on_config(config: Any) -> Any:
    """Replace each pattern of the navigation by the pages that no other entry names."""
    docs = Path(config.docs_dir)
    named = set(_names(config.nav))
    config.nav = [_expanded(entry, docs, named) for entry in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside docs/ that pages link to, and those that these link to, below `repository/`."""
    root, docs = Path(config.config_file_path).parent, Path(config.docs_dir)
    pages = [Path(file.abs_src_path) for file in files.documentation_pages()]
    for path in sorted(_linked(pages, docs)):
        uri = site_uri(path, root, docs)
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links of the repository into links of the site."""
    del files
    root, docs = Path(config.config_file_path).parent, Path(config.docs_dir)
    path, here = Path(page.file.abs_src_path), posixpath.dirname(page.file.src_uri)
    return LINK.sub(
        lambda link: posixpath.relpath(site_uri(_target(path, link[0]), root, docs), here or "."),
        markdown,
    )


def site_uri(path: Path, root: Path, docs: Path) -> str:
    """The location in the site of a file of the repository."""
    if path.is_relative_to(docs):
        return path.relative_to(docs).as_posix()
    return f"repository/{path.relative_to(root).as_posix()}"


def _names(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _names(each)


def _expanded(entry: Any, docs: Path, named: set[str]) -> Any:
    """A navigation entry, its patterns replaced by sorted pages."""
    if isinstance(entry, dict):
        return {title: _expanded(each, docs, named) for title, each in entry.items()}
    entries = [entry] if isinstance(entry, str) and "*" in entry else entry
    if isinstance(entries, str):
        return entries
    listed: list[Any] = []
    for each in entries:
        if isinstance(each, str) and "*" in each:
            pages = sorted(page.relative_to(docs).as_posix() for page in docs.glob(each))
            listed += [page for page in pages if page not in named]
        else:
            listed.append(_expanded(each, docs, named))
    return listed


def _linked(pages: Iterable[Path], docs: Path) -> set[Path]:
    """The files outside docs/ that the pages link to, also over several links."""
    outside: set[Path] = set()
    unread = list(pages)
    while unread:
        page = unread.pop()
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = _target(page, link)
            if target.is_file() and not target.is_relative_to(docs) and target not in outside:
                outside.add(target)
                unread += [target] if target.suffix == ".md" else []
    return outside


def _target(page: Path, link: str) -> Path:
    """The file that a link of a page names: of a directory its README."""
    path = Path(os.path.normpath(page.parent / link))
    return path / "README.md" if path.is_dir() else path
