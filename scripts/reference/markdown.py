"""Markdown: tables, and texts that cannot be taken for markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

HEAD = "<!-- Written by `make docs` from the code; edits are lost. -->\n\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty without rows."""
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]) + "\n"


def code(text: str) -> str:
    """Text in the font of code."""
    fence = "``" if "`" in text else "`"
    blank = " " if "`" in text else ""
    return f"{fence}{blank}{text}{blank}{fence}" if text else ""


def prose(text: str) -> str:
    """Text with its code kept, and without other markup: * < and > outside code are escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    """Text without markup; options, and names with an underscore, become code."""
    pieces = re.split(r"((?<![\w-])--[a-z][a-z-]+|(?<!\w)[A-Za-z]+(?:_[A-Za-z]+)+(?!\w))", text)
    return "".join(
        code(piece) if number % 2 else re.sub(r"([*<>\[\]_])", r"\\\1", piece)
        for number, piece in enumerate(pieces)
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()
