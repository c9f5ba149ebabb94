"""The page of the Python API, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import retention
from retention.api.bucket import Bucket
from retention.api.dry_run import DryRun, Repair
from retention.api.log import BoundPlan
from retention.api.stream import Stream
from retention.api.stream_consumers import StreamConsumers
from retention.api.table import BoundTablePlan, Table
from retention.api.topic import Topic
from retention.api.warehouse import Warehouse
from retention.delivery.consumer import BatchConsumer
from retention.plots.picture import Picture
from scripts.reference.markdown import HEAD, prose

CLASSES = (
    *(Warehouse, Stream, Topic, Table, BoundPlan, BoundTablePlan, DryRun, Repair),
    *(StreamConsumers, BatchConsumer, Bucket, Picture),
)
_FUNCTIONS = ("open_warehouse", "register", "register_functions", "subject_key", "subject_token")
_VALUES = ("CompactionLimits", "Guards", "MessageRange", "Selection")
_INTRODUCTION = (
    "# Python\n\n"
    "[In Python](../python.md) has the first steps. `retention.open_warehouse` opens everything else; "
    "errors are classes of `retention.errors` ([list](errors.md#classes)).\n\n"
)
_SECTION = re.compile(r"(Args|Arguments|Returns|Yields|Raises|Attributes):")
_TITLE = {"Args": "", "Arguments": "", "Attributes": "", "Returns": "Returns ", "Yields": "Yields "}
_EXAMPLE = re.compile(r"^>>> .*\n(?:.+\n?)*", re.MULTILINE)
_ITEM = re.compile(r"(\*{0,2}[\w., ]+?): (.*)")


def python_page() -> str:
    """Functions and classes with their methods."""
    functions = (
        _member(f"retention.{name}", getattr(retention, name), "##") for name in _FUNCTIONS
    )
    values = (_class(getattr(retention, name), f"retention.{name}") for name in _VALUES)
    classes = (_class(each, each.__name__) for each in CLASSES)
    return "".join((HEAD, _INTRODUCTION, *functions, *values, *classes))


def _class(kind: type, name: str) -> str:
    members = "".join(_member(f"{name}.{each}", member, "###") for each, member in _members(kind))
    made = f"```python\n{_call(name, kind)}\n```\n\n" if name.startswith("retention.") else ""
    return f"## {name}\n\n{made}{_described(inspect.getdoc(kind) or '')}\n{members}"


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The documented public methods and properties of a class, those of its bases too."""
    for name, member in inspect.getmembers_static(kind):
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property)):
            continue
        if inspect.getdoc(plain):
            yield name, plain


def _member(name: str, member: Any, level: str) -> str:
    text = _described(inspect.getdoc(member) or "")
    if isinstance(member, property):
        return f"{level} {name}\n\n{text}\n"
    return f"{level} {name}()\n\n```python\n{_call(name, member)}\n```\n\n{text}\n"


def _call(name: str, function: Any) -> str:
    """A call without types: `stream.publish(lines, writer=None, *, any_time=False)`."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(function).parameters.values()
        if each.name not in ("self", "cls")
    ]
    shown = str(inspect.Signature(parameters))
    return f"{name}{re.sub(r'<[^>]*>', '…', shown)}"


def _described(docstring: str) -> str:
    """A Google docstring as Markdown."""
    section, shown = "", ""
    for line in _EXAMPLE.sub("", docstring).splitlines():
        title = _SECTION.fullmatch(line.strip())
        if title and not line.startswith(" "):
            section = title[1]
            shown += "\n"
        elif not section:
            shown += f"{prose(line)}\n"
        elif line.strip():
            shown += _entry(section, line)
    return re.sub(r"\n{3,}", "\n\n", shown.strip() + "\n")


def _entry(section: str, line: str) -> str:
    """A line of a section: the begin of an item, or more of it."""
    if re.match(r" {5,}", line):
        return f"  {prose(line.strip())}\n"
    item = _ITEM.fullmatch(line.strip())
    if section in ("Returns", "Yields") or item is None:
        return f"{_TITLE.get(section, '- raises ')}{prose(line.strip())}\n"
    verb = "raises " if section == "Raises" else ""
    return f"- {verb}`{item[1]}`: {prose(item[2])}\n"
