"""One word for one thing: names describe their values, and docstrings name their subject."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path for path in (ROOT / "retention").iterdir() if (path / "__init__.py").exists()
)
BANNED = {"asked", "found", "mine", "one", "own", "said", "seen", "told"}
"""Names that describe the origin of a value instead of the value."""
OPENINGS = {
    "as",
    "how",
    "it",
    "that",
    "them",
    "they",
    "those",
    "what",
    "when",
    "where",
    "which",
    "who",
}
"""First words of docstrings that name no subject."""


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that a module binds, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every docstring of a module, including those of fields, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for statement in node.body if not isinstance(node, ast.FunctionDef) else node.body[:1]:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    value = statement.value.value
                    if isinstance(value, str) and value.strip():
                        yield statement.lineno, value


def modules(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_name_says_what_it_holds(package: Path) -> None:
    banned = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, tree in modules(package)
        for line, name in names(tree)
        if name.lstrip("_") in BANNED
    ]
    assert banned == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_docstring_opens_with_the_thing(package: Path) -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line} {text.split()[0]}"
        for path, tree in modules(package)
        for line, text in docstrings(tree)
        if text.split()[0].strip(",.:;").lower() in OPENINGS
    ]
    assert vague == []
