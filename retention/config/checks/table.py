"""Refusals of a table by itself: rules without the columns that they need, policies without effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from retention.config.types import ConfigRefusal
from retention.core.subjects import MAX_NAME_LENGTH, is_valid_name

if TYPE_CHECKING:
    from retention.config.table import RowPolicyConfig, TableConfig

_NEWEST = ("max_rows_per_key", "max_rows", "max_bytes")
"""Limits that keep the newest rows."""


def table_refusals(table: TableConfig) -> Iterator[ConfigRefusal]:
    """The refusals of a table by itself."""
    if not is_valid_name(table.name):
        yield _refused(
            "name",
            f"{table.name!r} is not a name: write 1 to {MAX_NAME_LENGTH} bytes without whitespace and without any of "
            ". * > / \\",
        )
    yield from _columns(table)
    yield from _needs(table, table, ())
    if table.format == "parquet":
        yield from _beyond_files(table)
    for at, policy in enumerate(table.policies):
        within = ("policies", at)
        yield from _needs(table, policy, within)
        yield from _without_effect(table.policies[:at], policy, within)


def _columns(table: TableConfig) -> Iterator[ConfigRefusal]:
    times = table.time or table.expires_at
    for key in ("zone", "unit"):
        if getattr(table, key) is not None and not times:
            text = (
                f"there is no column of times that has a {key}; write time: COLUMN, or remove {key}"
            )
            yield _refused(f"{key} time expires_at", text)


def _needs(
    table: TableConfig, limits: TableConfig | RowPolicyConfig, within: tuple[str | int, ...]
) -> Iterator[ConfigRefusal]:
    """Limits without the column that they need."""
    if limits.max_age is not None and table.time is None:
        text = "no column has the time of a row; write time: COLUMN on the table"
        yield _refused("max_age time", text, within)
    if limits.max_rows_per_key is not None and not table.key:
        text = "no column has the key of a row; write key: [COLUMN] on the table"
        yield _refused("max_rows_per_key key", text, within)
    if within and "expires_at" in limits.model_fields_set and table.expires_at is None:
        text = (
            "no column has the instant at which a row expires; write expires_at: COLUMN on the table, or remove "
            "the key"
        )
        yield _refused("expires_at", text, within)
    for limit in _NEWEST:
        if getattr(limits, limit) is not None and table.time is None:
            yield from _order_alone(table, limit, within)


def _beyond_files(table: TableConfig) -> Iterator[ConfigRefusal]:
    """Settings of a directory of Parquet files that whole files cannot satisfy."""
    limited = [((), table), *((("policies", at), each) for at, each in enumerate(table.policies))]
    for within, limits in limited:
        if limits.max_rows_per_key is not None:
            text = (
                "a directory of Parquet files has no log, so that only whole files can be removed, and a file has rows "
                "of many keys; write the table as Delta, or remove the limit"
            )
            yield _refused("max_rows_per_key", text, within)


def _order_alone(
    table: TableConfig, limit: str, within: tuple[str | int, ...]
) -> Iterator[ConfigRefusal]:
    """Limits of a table without `time` that its `order` does not decide."""
    if not table.order:
        text = "nothing says which rows are the newest; write time: COLUMN, or order: [COLUMN], on the table"
        yield _refused(f"{limit} time order", text, within)
    elif limit == "max_bytes" and table.size is None:
        text = (
            "whole files are removed where no column has the size of a row, and their order is that of time; write "
            "time: COLUMN, or size: COLUMN, on the table"
        )
        yield _refused(f"{limit} time size", text, within)


def _without_effect(
    before: Sequence[RowPolicyConfig], policy: RowPolicyConfig, within: tuple[str | int, ...]
) -> Iterator[ConfigRefusal]:
    """Policies that limit nothing, or that no row reaches."""
    if not policy.named:
        text = "names no limit, so these rows have those of the table; write one, such as max_age: 30d, or max_age: off"
        yield _refused("where", text, within)
    for at, earlier in enumerate(before):
        if _covers(earlier, policy):
            text = f"no row reaches this policy, because policies.{at} matches all of them; put it before that one"
            yield _refused("where", text, within)
            return


def _covers(earlier: RowPolicyConfig, policy: RowPolicyConfig) -> bool:
    """Whether every row that a policy matches matches an earlier one, too."""
    values = dict(policy.matches)
    return all(
        column in values and set(values[column]) <= set(matched)
        for column, matched in earlier.matches
    )


def _refused(keys: str, text: str, within: tuple[str | int, ...] = ()) -> ConfigRefusal:
    return ConfigRefusal(tuple(keys.split()), text, within=within)
