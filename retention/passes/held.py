"""What a pass held back: which rules would have taken how much, for whom, and since when."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.policy import HoldAction
from retention.rules.holding import ANYBODY
from schemas.plan import RULE_NAMES


@dataclass(frozen=True)
class HeldFor:
    """What one rule would have taken and one consumer still needs."""

    consumer: str
    rule: str
    messages: int
    bytes: int
    oldest_ts_ns: int
    """When the oldest of them was stored, nanoseconds since the epoch."""


@dataclass(frozen=True)
class Held:
    """What consumers held back, or with `warn` would have."""

    action: HoldAction
    messages: int = 0
    """Each once, also if several consumers need it."""
    bytes: int = 0
    by_consumer: tuple[HeldFor, ...] = ()
    """By consumer, then in the order of the rules."""
    missing: tuple[str, ...] = ()
    """Consumers that the configuration names and that are not there: everything is held for them."""

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self) | {
            "by_consumer": [asdict(one) for one in self.by_consumer],
            "missing": list(self.missing),
        }


def held_from_json(values: dict[str, Any] | None) -> Held | None:
    """Read what `Held.as_json` made."""
    if values is None:
        return None
    by_consumer = tuple(HeldFor(**one) for one in values["by_consumer"])
    return Held(**values | {"by_consumer": by_consumer, "missing": tuple(values["missing"])})


def summed(
    ranges: pa.Table, consumers: tuple[str, ...], action: HoldAction, missing: tuple[str, ...]
) -> Held:
    """Sum up what is held.

    Args:
        ranges: shape `HELD_RANGES`.
        consumers: their names, by number.
        action: what is done about it.
        missing: those that are not there.
    """
    total = ranges.filter(pc.equal(ranges["consumer"], ANYBODY))
    each = ranges.filter(pc.not_equal(ranges["consumer"], ANYBODY))
    folds = [("messages", "sum"), ("bytes", "sum"), ("oldest_ts_ns", "min")]
    grouped = each.group_by(["consumer", "rule"], use_threads=False).aggregate(folds)
    rows = grouped.sort_by([("consumer", "ascending"), ("rule", "ascending")]).to_pylist()
    return Held(
        action=action,
        messages=pc.sum(total["messages"], min_count=0).as_py(),
        bytes=pc.sum(total["bytes"], min_count=0).as_py(),
        by_consumer=tuple(
            HeldFor(
                consumer=consumers[row["consumer"]],
                rule=RULE_NAMES[row["rule"]],
                messages=row["messages_sum"],
                bytes=row["bytes_sum"],
                oldest_ts_ns=row["oldest_ts_ns_min"],
            )
            for row in rows
        ),
        missing=missing,
    )
