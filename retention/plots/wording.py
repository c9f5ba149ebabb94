"""Texts in pictures: names of any content made short and harmless, and numbers made short."""

from __future__ import annotations

import re

from retention.core.units import DAY, SECOND, format_instant
from retention.errors.printable import visible

_NOT_IN_XML = re.compile("[\ufffe\uffff]")
_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_CUT_BEFORE = 4096
"""The characters of a name that are looked at: no name needs more to be told from others."""


def short_name(name: str, most: int) -> str:
    r"""A name in which no character controls a display, cut in the middle to some characters.

    >>> short_name("orders.created.by.someone.else", 14)
    'orders.…e.else'
    >>> short_name("a\u202eb", 14)
    'a\\u202eb'
    """
    ends = (
        name if len(name) <= _CUT_BEFORE else name[: _CUT_BEFORE // 2] + name[-_CUT_BEFORE // 2 :]
    )
    shown = visible(_NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", ends))
    if len(shown) <= most:
        return shown
    tail = (most - 1) // 2
    return f"{shown[: most - 1 - tail]}…{shown[-tail:]}"


def short_number(number: float) -> str:
    """A number in at most three digits and a unit.

    >>> [short_number(each) for each in (0, 7, 999, 1_200, 25_000, 3_456_789, 0.5)]
    ['0', '7', '999', '1.2k', '25k', '3.46M', '0.5']
    """
    for size, unit in _UNITS:
        if abs(number) >= size:
            return f"{float(f'{number / size:.3g}'):g}{unit}"
    return f"{float(f'{number:.3g}'):g}"


def short_instant(ns: int) -> str:
    """An instant to the second; to the day, if it is the beginning of one.

    >>> short_instant(0), short_instant(10**9)
    ('1970-01-01', '1970-01-01T00:00:01Z')
    """
    text = format_instant(ns // SECOND * SECOND)
    return text[: text.index("T")] if ns % DAY == 0 else text
