"""Measures of the source tree, to compare states of it: `python -m scripts.measure_house [DIR …]`, a column a clone."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scripts.crossings import crossings

_FORMAT_TEST = re.compile(r"""(==|!=) "(delta|parquet)"|format_? in """)
_LEANING = re.compile(
    r"\b(of which|whoever|whose|nobody|somebody|whatever)\b|^(What|Who)\b", re.IGNORECASE
)
_WORDS = ("held", "place", "known", "whole", "kept", "left", "remaining", "mark")


@dataclass(frozen=True)
class Tree:
    """The package `retention` of a clone, with the others that are installed beside it."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """Path → module of `retention/`."""
        paths = sorted((self.root / "retention").rglob("*.py"))
        return {
            str(path.relative_to(self.root)): ast.parse(path.read_text("utf-8")) for path in paths
        }

    @cached_property
    def text(self) -> str:
        """The text of `retention/`."""
        return "".join((self.root / path).read_text("utf-8") for path in self.modules)

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """The classes of `retention/`."""
        return list(self._nodes(ast.ClassDef))

    def measures(self) -> Iterator[tuple[str, str]]:
        """Each measure by name."""
        lines = self.text.count("\n")
        tests = sum(
            path.read_text("utf-8").count("\n") for path in (self.root / "tests").rglob("*.py")
        )
        yield "modules, lines of retention/", f"{len(self.modules):,}, {lines:,}"
        yield "lines of tests/", f"{tests:,}"
        names = Counter(node.name for node in self.classes if not node.name.startswith("_"))
        twice = {name: count for name, count in names.items() if count > 1}
        yield "classes; public names of more than one", f"{len(self.classes):,}; {len(twice)}"
        yield "members of Store", str(self._members("Store"))
        yield "modules that compose a swap", str(self._calling("Swap"))
        yield "modules that begin a recorded run", str(self._calling("recorded_run"))
        yield (
            "modules outside stores/{delta,parquet} that test the format's name",
            str(self._format_tests()),
        )
        yield "pairs of functions that call each other between modules", crossings(self.root)
        anys = len(re.findall(r"\bAny\b", self.text))
        yield (
            "Any per 1,000 lines; dict[str, Any]",
            (f"{1000 * anys / lines:.1f}; {self.text.count('dict[str, Any]')}"),
        )
        docstrings = list(self._docstrings())
        leaning = sum(bool(_LEANING.search(text.splitlines()[0])) for text in docstrings)
        yield (
            "docstrings that lean on a pronoun in the first line",
            f"{leaning} of {len(docstrings):,}",
        )
        found = Counter(re.findall(r"[a-z]+", self.text.lower()))
        yield "uses of words", ", ".join(f"{word} {found[word]}" for word in _WORDS)

    def _nodes(self, kind: type[ast.ClassDef]) -> Iterator[ast.ClassDef]:
        for module in self.modules.values():
            yield from (node for node in ast.walk(module) if isinstance(node, kind))

    def _members(self, name: str) -> int:
        [node] = [node for node in self.classes if node.name == name]
        return sum(isinstance(member, ast.FunctionDef) for member in node.body)

    def _calling(self, name: str) -> int:
        return sum(name in _called(module) for module in self.modules.values())

    def _format_tests(self) -> int:
        outside = (
            (self.root / path).read_text("utf-8")
            for path in self.modules
            if not path.startswith(("retention/stores/delta/", "retention/stores/parquet/"))
        )
        return sum(bool(_FORMAT_TEST.search(text)) for text in outside)

    def _docstrings(self) -> Iterator[str]:
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        for module in self.modules.values():
            for node in ast.walk(module):
                text = ast.get_docstring(node) if isinstance(node, documented) else None
                if text:
                    yield text


def _called(module: ast.Module) -> set[str]:
    """The names of functions that a module calls."""
    calls = (node.func for node in ast.walk(module) if isinstance(node, ast.Call))
    return {call.id for call in calls if isinstance(call, ast.Name)}


def table(trees: Iterable[Tree]) -> Iterator[str]:
    """A Markdown table with a column for each tree."""
    trees = list(trees)
    yield f"| | {' | '.join(tree.root.name for tree in trees)} |"
    yield f"|---{'|---' * len(trees)}|"
    for rows in zip(*(tree.measures() for tree in trees), strict=True):
        yield f"| {rows[0][0]} | {' | '.join(value for _, value in rows)} |"


if __name__ == "__main__":
    print("\n".join(table(Tree(Path(name).resolve()) for name in sys.argv[1:] or ["."])))
