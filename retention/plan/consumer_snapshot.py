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
    """The number of times that it was created, edited or deleted."""
    version: int
    """The version of its record; floors only rise, so that a later one releases no less."""


@dataclass(frozen=True)
class ConsumerSnapshot:
    """The consumers of a stream, as one pass sees them."""

    interests: tuple[Interest, ...] = ()
    pins: tuple[Pin, ...] = ()
    expired: tuple[Pin, ...] = ()
    """Consumers that nobody has used for too long: they are not asked, and the pass deletes them."""


def pins_as_json(pins: tuple[Pin, ...] | None) -> list[dict[str, Any]] | None:
    """Pins as JSON values; part of what a plan's identity is computed from."""
    return None if pins is None else [vars(pin).copy() for pin in pins]


def pins_from_json(values: list[dict[str, Any]] | None) -> tuple[Pin, ...] | None:
    """Read pins that `pins_as_json` made JSON values of; None stays None."""
    return None if values is None else tuple(Pin(**pin) for pin in values)
