"""The oldest segments of a stream, as far as a plan reads it, and totals of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention.core.inventory import Inventory


@dataclass(frozen=True)
class TailTotals:
    """Totals of the part of a stream after a prefix, which is not read."""

    segments: int = 0
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Prefix:
    """The oldest segments of a stream as an inventory, and the totals of the rest."""

    inventory: Inventory
    later: TailTotals
