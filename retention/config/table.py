"""One table in place: its location, the columns that rules read, and its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from pydantic import field_validator, model_validator

from retention.config.checks.table import table_refusals
from retention.config.holds import RowHold
from retention.config.keeping import RunSettings, Selected
from retention.config.table_types import (
    AgeLimit,
    Column,
    Columns,
    RowLimit,
    SizeLimit,
    Switch,
    TableFormat,
    TableLocation,
    Values,
    Zone,
    parse_column,
)
from retention.config.types import ConfigMapping, Flag, refusal_error, refusals_error
from retention.core.table_policy import (
    EvidenceForm,
    RowPolicy,
    TableColumns,
    TableLimits,
    TablePolicy,
    Unit,
)
from retention.errors import UsageError


class _Limits(ConfigMapping):
    """The limits that a table and each of its policies may have; None: no limit."""

    max_age: AgeLimit = None
    max_rows_per_key: RowLimit = None
    max_rows: RowLimit = None
    max_bytes: SizeLimit = None


class RowPolicyConfig(_Limits):
    """Limits for the rows that have certain values; they replace the table's, one by one."""

    where: dict[str, Values]
    expires_at: Switch = True

    @field_validator("where", mode="before")
    @classmethod
    def _equalities(cls, value: object) -> object:
        if not isinstance(value, dict) or not value:
            raise refusal_error(
                f"{value!r} is no equality, and rows are selected by equal values only; write {{column: [value]}}"
            )
        try:
            columns = [parse_column(str(column)) for column in value]
        except UsageError as error:
            raise refusal_error(str(error)) from error
        if len(set(columns)) < len(columns):
            raise refusal_error(f"names a column twice: {', '.join(map(str, value))}; merge them")
        return value

    @property
    def matches(self) -> tuple[tuple[tuple[str, ...], Values], ...]:
        """Each column, and the values of which a row has one."""
        return tuple((parse_column(column), values) for column, values in self.where.items())

    @property
    def named(self) -> frozenset[str]:
        """The names of the limits that the policy sets."""
        return frozenset(self.model_fields_set - {"where"})


class TableConfig(_Limits, RunSettings, Selected):
    """A table of another owner, whose rows are removed where they are; durations nanoseconds, sizes bytes."""

    name: str
    location: TableLocation
    format: TableFormat = "delta"
    time: Column | None = None
    """The time of a row."""
    zone: Zone | None = None
    """The zone of times without one."""
    unit: Unit | None = None
    """The unit of times that are integers since the epoch."""
    key: Columns = ()
    """The columns that identify the subject of a row, such as a user."""
    order: Columns = ()
    """The columns that order the rows of a key, or of one time, oldest first."""
    size: Column | None = None
    """The bytes of a row."""
    expires_at: Column | None = None
    """The instant from which a row is expired; null: never."""
    policies: tuple[RowPolicyConfig, ...] = ()
    """A row belongs to the first that it matches."""
    evidence: EvidenceForm = "keys"
    """The form in which records of runs keep the keys of removed rows, beside their times; none: neither."""
    exclusive: Flag = False
    """Whether no other program writes the table while the engine does, so that Spark may commit on S3."""
    holds: tuple[RowHold, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        refusals = list(table_refusals(self))
        if refusals:
            raise refusals_error(refusals)
        return self

    @property
    def columns(self) -> TableColumns:
        """The columns that rules read."""
        names = ("time", "unit", "zone", "key", "order", "size", "expires_at")
        return TableColumns(**{name: getattr(self, name) for name in names})

    @property
    def policy(self) -> TablePolicy:
        """The limits as used by the rules; None: no limit."""
        limits = TableLimits(**_values(self), expires=self.expires_at is not None)
        policies = tuple(
            RowPolicy(policy.matches, replace(limits, **_of_policy(policy)), policy.named)
            for policy in self.policies
        )
        return TablePolicy(self.columns, limits, policies)


_FIELDS = {name: f"{name}_ns" if name == "max_age" else name for name in _Limits.model_fields}
"""Key of a limit → field of `TableLimits`."""


def _values(limits: _Limits) -> dict[str, Any]:
    return {field: getattr(limits, name) for name, field in _FIELDS.items()}


def _of_policy(policy: RowPolicyConfig) -> dict[str, Any]:
    """The limits that a policy sets, by field of `TableLimits`."""
    fields = _FIELDS | {"expires_at": "expires"}
    return {fields[name]: getattr(policy, name) for name in policy.named}
