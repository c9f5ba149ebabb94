"""Snapshot of the consumers of a stream for one pass: the needs of each, and the edit on which they are based."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retention.rules.jetstream.interest import Interest


@dataclass(frozen=True, order=True)
class Pin:
    """The version of a consumer that a plan is based on."""

    consumer: str
    revision: int
    """The number of times that it was created, edited or deleted."""
    version: int
    """The version of its record; floors never fall, so a later version releases no less."""


@dataclass(frozen=True)
class ConsumerSnapshot:
    """The consumers of a stream, for one pass."""

    interests: tuple[Interest, ...] = ()
    pins: tuple[Pin, ...] = ()
    expired: tuple[Pin, ...] = ()
    """Inactive consumers: their needs are ignored, and the pass deletes them."""


def pins_as_json(pins: tuple[Pin, ...] | None) -> list[dict[str, object]] | None:
    """Pins as JSON values; part of the input of a plan's id."""
    return None if pins is None else [vars(pin).copy() for pin in pins]


def pins_from_json(values: list[dict[str, Any]] | None) -> tuple[Pin, ...] | None:
    """Read pins from `pins_as_json` values; None stays None."""
    return None if values is None else tuple(Pin(**pin) for pin in values)
