"""Numbers with their nouns, in text for people."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str, several: str | None = None) -> str:
    """A number with its noun, in the plural unless it is 1.

    Args:
        number: how many.
        noun: the singular, and the verb that agrees with it: `message`, `file is`.
        several: the plural form; None: the noun with an s.

    >>> counted(1, "message"), counted(0, "message"), counted(1200, "file is", "files are")
    ('1 message', '0 messages', '1,200 files are')
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def kinds_counted(kinds: Sequence[str]) -> str:
    """The numbers of streams, topics and tables.

    >>> kinds_counted(["table", "stream", "stream"]), kinds_counted([])
    ('2 streams and 1 table', 'no streams')
    """
    texts = [
        counted(kinds.count(kind), kind) for kind in ("stream", "topic", "table") if kind in kinds
    ]
    *others, last = texts or ["no streams"]
    return f"{', '.join(others)} and {last}" if others else last


def wrong_length(length: int | None, expected: int) -> str:
    """The phrase for a file with a wrong length, in bytes; None: the file is missing.

    >>> wrong_length(None, 7), wrong_length(1, 7)
    ('is missing', 'has 1 byte, not 7')
    """
    return "is missing" if length is None else f"has {counted(length, 'byte')}, not {expected}"


def capitalized(text: str) -> str:
    """A text whose first letter is a capital; the others stay.

    >>> capitalized("last S3 place"), capitalized("")
    ('Last S3 place', '')
    """
    return text[:1].upper() + text[1:]
