"""An index of subject filters by their tokens, to find overlapping filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class FilterEntry:
    """A filter of the index."""

    number: int
    """The number of filters added before it."""
    subject: str
    owner: str


@dataclass
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    ending: list[FilterEntry] = field(default_factory=list)
    """The filters that end at this node."""


class FilterIndex:
    """A tree with a token on each branch: it finds overlaps without a scan of all filters."""

    def __init__(self) -> None:
        self._root = _Node()
        self._size = 0

    def add(self, subject: str, owner: str) -> None:
        """Add a filter."""
        node = self._root
        for token in subject.split("."):
            node = node.children.setdefault(token, _Node())
        node.ending.append(FilterEntry(self._size, subject, owner))
        self._size += 1

    def first_overlap(self, subject: str) -> FilterEntry | None:
        """The first overlapping filter (`subjects.overlap`) in the order of insertion; None: none."""
        return min(_overlapping(self._root, subject.split(".")), default=None)


def _overlapping(root: _Node, tokens: list[str]) -> Iterator[FilterEntry]:
    """The filters of a tree that overlap with one of these tokens."""
    waiting = [(root, 0)]
    while waiting:
        node, position = waiting.pop()
        if position == len(tokens):
            yield from node.ending
            continue
        wanted = tokens[position]
        if wanted == ">":
            yield from (entry for child in node.children.values() for entry in _all(child))
            continue
        if ">" in node.children:
            yield from _all(node.children[">"])
        followed = (
            [name for name in node.children if name != ">"] if wanted == "*" else (wanted, "*")
        )
        waiting += [
            (node.children[name], position + 1) for name in followed if name in node.children
        ]


def _all(node: _Node) -> Iterator[FilterEntry]:
    """The filters of a node and its descendants."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield from current.ending
        waiting += current.children.values()
