"""Bounds of a number that is known only if rows are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Bounds of one number: at least `lower`, at most `upper`."""

    lower: int
    upper: int

    def as_json(self) -> dict[str, int]:
        """Both bounds, by name."""
        return {"lower": self.lower, "upper": self.upper}
