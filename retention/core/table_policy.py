"""The policy of a table in place: its columns as rules see them, its limits, and those of some of its rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

Column = tuple[str, ...]
"""A column by its names from the top level down, as the table's schema has them; `("at",)`, or `("event", "at")`."""
Unit = Literal["s", "ms", "us", "ns"]
EvidenceForm = Literal["keys", "hashed", "none"]
Scalar = str | int | bool | Decimal | date | datetime | None


@dataclass(frozen=True)
class TableColumns:
    """The columns that rules read; None: the table has no such column, and no rule that needs it."""

    time: Column | None = None
    """The time of a row: DATE, TIMESTAMP, TIMESTAMP_NTZ with `zone`, or an integer with `unit`."""
    unit: Unit | None = None
    """The unit of integers since the epoch, in `time` and `expires_at`."""
    zone: str | None = None
    """The IANA name of the zone of TIMESTAMP_NTZ columns."""
    key: tuple[Column, ...] = ()
    """A row in which any of these is null has no key."""
    order: tuple[Column, ...] = ()
    """The order of rows of one time, and within a key the whole order; afterwards file and row decide."""
    size: Column | None = None
    """The bytes of a row, an integer."""
    expires_at: Column | None = None
    """The instant from which a row is expired, of the kinds of `time`; null: never."""


@dataclass(frozen=True)
class TableLimits:
    """The limits of rows; None: unlimited."""

    max_age_ns: int | None = None
    """A row whose time is this old, or older, goes; a row without a time never does."""
    max_rows_per_key: int | None = None
    """The newest rows of each key that stay; rows without a key stay."""
    max_rows: int | None = None
    """The newest rows that stay."""
    max_bytes: int | None = None
    """The bytes of the newest rows that stay: sums of `size`, or whole files where there is no such column."""
    expires: bool = False
    """Whether rows go at the instant of their column `expires_at`."""


LIMITS = ("expires_at", "max_age", "max_rows_per_key", "max_rows", "max_bytes")
"""The limits by name, in the order in which a pass applies them: each to the rows that those before it left."""


@dataclass(frozen=True)
class RowPolicy:
    """Limits for the rows that match: they replace the table's, one by one."""

    where: tuple[tuple[Column, tuple[Scalar, ...]], ...]
    """Column → the values of which a row has one; null matches only where it is among them."""
    limits: TableLimits
    """All limits of these rows: their own, and the table's for the rest."""
    named: frozenset[str]
    """Names of the limits that are their own: `max_rows` and `max_bytes` among them count these rows alone,
    and the table's own counts are of the rows of the table and of all policies that do not name them."""


@dataclass(frozen=True)
class TablePolicy:
    """The rules of a table in place. A row belongs to the first of `policies` that it matches, or to none."""

    columns: TableColumns
    limits: TableLimits
    policies: tuple[RowPolicy, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The policy as JSON values, by name; part of the input of a plan's id."""
        return {
            "columns": asdict(self.columns),
            "limits": asdict(self.limits),
            "policies": [
                {
                    "where": [
                        [list(column), [_written(value) for value in values]]
                        for column, values in policy.where
                    ],
                    "limits": asdict(policy.limits),
                    "named": sorted(policy.named),
                }
                for policy in self.policies
            ],
        }


def with_one_limit(policy: TablePolicy, limit: str) -> TablePolicy:
    """A policy with one of its limits alone, for all rows."""
    return replace(
        policy,
        limits=_alone(policy.limits, limit),
        policies=tuple(
            replace(each, limits=_alone(each.limits, limit)) for each in policy.policies
        ),
    )


def _alone(limits: TableLimits, limit: str) -> TableLimits:
    name = {"max_age": "max_age_ns", "expires_at": "expires"}.get(limit, limit)
    return replace(TableLimits(), **{name: getattr(limits, name)})


def _written(value: Scalar) -> Any:
    plain = value is None or isinstance(value, (str, int))
    return value if plain else [type(value).__name__, str(value)]
