"""Numbers, durations and instants as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from retention.core.units import DAY, HOUR, MINUTE, SECOND, format_duration, format_instant
from retention.errors.printable import visible

if TYPE_CHECKING:
    from retention.core.bounds import Bounds


def lines_text(lines: Iterable[str]) -> str:
    """Lines as one text, in which no name controls a terminal."""
    return "\n".join(map(visible, lines))


def brief_duration(ns: int) -> str:
    """A duration rounded down to its two largest units: `31d 2h`."""
    if ns < 0:
        return f"-{brief_duration(-ns)}"
    units = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND))
    for at, (name, length) in enumerate(units):
        if ns >= length:
            parts = [f"{ns // length}{name}"]
            if at + 1 < len(units):
                below, shorter = units[at + 1]
                rest = ns % length // shorter
                parts += [f"{rest}{below}"] if rest else []
            return " ".join(parts)
    return format_duration(ns)


def brief_instant(ns: int) -> str:
    """An instant rounded down to the second."""
    return format_instant(ns // SECOND * SECOND)


def counted_bounds(bounds: Bounds, noun: str) -> str:
    """The bounds of a number with their noun, in the plural unless the upper one is 1."""
    return f"{bounds_text(bounds)} {noun if bounds.upper == 1 else f'{noun}s'}"


def bounds_text(bounds: Bounds) -> str:
    """The bounds of a number, `lower to upper`; a single number if they are equal."""
    if bounds.lower == bounds.upper:
        return f"{bounds.lower:,}"
    return f"{bounds.lower:,} to {bounds.upper:,}"
