"""Nodes of a long YAML text, parsed by libyaml where its YAML 1.1 and our YAML 1.2 cannot differ."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

LONG = 16_384
"""The characters up to which a parser in Python costs less than the import of another one."""
_UNUSUAL = re.compile(r"[^\n\x20-\x7e]|[&!%@`|?\\]|<<|['\"]:\S")
"""Signs of tags, anchors, directives, block scalars, complex keys, escapes, merges and values that touch their keys,
and all but plain ASCII."""
_QUOTED = frozenset("'\"")


def quick_nodes(text: str, resolver: Any, deepest: int) -> Node | None:
    """The root node of a text, with the line of each node; None: only the parser in Python may read it.

    A text is left to that parser if it is short or wrong, nests deeper than `deepest`, or has anything but mappings,
    sequences and scalars of one line: versions of YAML differ in the rest.

    Args:
        text: the text.
        resolver: resolves the tags of plain scalars, as for a text parsed in Python.
        deepest: the most collections around a node.
    """
    if len(text) < LONG or _UNUSUAL.search(text):
        return None
    import yaml

    if not yaml.__with_libyaml__:
        return None
    composer = _Composer(resolver, deepest)
    try:
        is_plain = all(map(composer.take, yaml.parse(text, Loader=yaml.CBaseLoader)))
    except yaml.YAMLError:
        return None
    return composer.root if is_plain else None


class _Composer:
    """Nodes from events; `take` returns False for an event that only the parser in Python may read."""

    def __init__(self, resolver: Any, deepest: int) -> None:
        self.root: Node | None = None
        self._resolve = resolver.resolve
        self._deepest = deepest
        self._around: list[CollectionNode] = []

    def take(self, event: Any) -> bool:
        match type(event).__name__:
            case "ScalarEvent":
                return self._scalar(event)
            case "MappingStartEvent":
                return self._begin(event, MappingNode)
            case "SequenceStartEvent":
                return self._begin(event, SequenceNode)
            case "MappingEndEvent" | "SequenceEndEvent":
                return self._end()
            case "DocumentStartEvent":
                return not event.explicit and self.root is None
            case kind:
                return kind != "AliasEvent"

    def _scalar(self, event: Any) -> bool:
        """Take a scalar of one line, without a character that only some versions take for its end."""
        if event.start_mark.line != event.end_mark.line or event.style == ">":
            return False
        in_flow = bool(self._around) and self._around[-1].flow_style
        if in_flow and ":" in event.value and event.style not in _QUOTED:
            return False
        tag = self._resolve(ScalarNode, event.value, event.implicit)
        return self._add(ScalarNode(tag, event.value, event.start_mark, event.end_mark))

    def _begin(self, event: Any, made: type[CollectionNode]) -> bool:
        tag = self._resolve(made, None, event.implicit)
        node = made(tag, [], event.start_mark, None, flow_style=event.flow_style)
        is_taken = self._add(node)
        self._around.append(node)
        return is_taken

    def _end(self) -> bool:
        node = self._around.pop()
        if isinstance(node, MappingNode):
            node.value = list(zip(node.value[::2], node.value[1::2], strict=True))
        return True

    def _add(self, node: Node) -> bool:
        if self._around:
            self._around[-1].value.append(node)
        else:
            self.root = node
        return len(self._around) <= self._deepest
