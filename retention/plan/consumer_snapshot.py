"""The consumers of a stream as one pass sees them: what each still needs, and which edit of it that rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from retention.rules.jetstream.interest import Interest


@dataclass(frozen=True, order=True)
class Pin:
    """A consumer as a plan found it."""

    consumer: str
    revision: int
    """How often it was created, edited or deleted."""
    version: int
    """Of its record; floors only rise, so that a later one releases no less."""


@dataclass(frozen=True)
class ConsumerSnapshot:
    """Everybody who reads a stream."""

    interests: tuple[Interest, ...] = ()
    pins: tuple[Pin, ...] = ()
    expired: tuple[Pin, ...] = ()
    """Those that nobody has used for too long: they are not asked, and the pass deletes them."""


def pins_as_json(pins: tuple[Pin, ...] | None) -> list[dict[str, Any]] | None:
    """Pins as JSON values; part of what a plan's identity is computed from."""
    return None if pins is None else [vars(pin).copy() for pin in pins]


def pins_from_json(said: list[dict[str, Any]] | None) -> tuple[Pin, ...] | None:
    """Read what `pins_as_json` made."""
    return None if said is None else tuple(Pin(**one) for one in said)
