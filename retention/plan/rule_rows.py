"""Rules in a plan's tables: conversion between rows by rule name and counts by rule index."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.schemas.plan import PLANNED_PARTS, PLANNED_RULES, REMOVED_RANGES, RULE, RULE_NUMBER
from retention.schemas.rule_names import RULE_NAMES

if TYPE_CHECKING:
    from retention.core.spans import Array


def rule_column(numbers: Array) -> pa.DictionaryArray:
    """Rules by name, from indexes into `RULE_NAMES`."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers, RULE.index_type), _names())


def rule_numbers(rules: pa.ChunkedArray) -> Array:
    """Indexes into `RULE_NAMES`, from rules by name.

    Raises:
        ValueError: a name is not that of a rule.
    """
    by_name = rules.combine_chunks()
    if pa.types.is_dictionary(by_name.type) and by_name.dictionary.equals(_names()):
        numbers = by_name.indices
    else:
        numbers = pc.index_in(by_name.cast(pa.string()), value_set=_names())
    if numbers.null_count:
        raise ValueError("rule names an unknown rule")
    return numbers.to_numpy().astype(np.int64)


def rule_rows(counts: Array, sizes: Array) -> pa.Table:
    """Rows of the removals by rules, one for each file and rule; shape `PLANNED_RULES`, by file.

    The counts [[0, 3], [2, 1]] make one row for file 0 (rule 1 removes 3), and two for file 1 (rule
    0 removes 2, rule 1 removes 1), with null bytes.

    Args:
        counts: messages; shape (files, rules).
        sizes: bytes removed from each file; if several rules share a file, the bytes of each rule are unknown.
    """
    files, rules = np.nonzero(counts)
    shared = np.count_nonzero(counts, axis=1)[files] > 1
    return pa.table(
        {
            "file": files,
            "rule": rule_column(rules),
            "messages": counts[files, rules],
            "bytes": pa.array(sizes[files], pa.int64(), mask=shared),
        },
        schema=PLANNED_RULES,
    )


def rule_counts(rows: pa.Table, files: int) -> Array:
    """Messages that each rule removes from each file, shape (files, rules), from `PLANNED_RULES` rows."""
    counts = np.zeros((files, len(RULE_NAMES)), dtype=np.int64)
    at = (rows["file"].to_numpy(), rule_numbers(rows["rule"]))
    np.add.at(counts, at, rows["messages"].to_numpy())
    return counts


def messages_by_rule(rows: pa.Table) -> dict[str, int]:
    """Messages by rule, in the order of a pass, from `PLANNED_RULES` rows; rules without any are omitted."""
    counts = np.zeros(len(RULE_NAMES), dtype=np.int64)
    np.add.at(counts, rule_numbers(rows["rule"]), rows["messages"].to_numpy())
    return {rule: count for rule, count in zip(RULE_NAMES, counts.tolist(), strict=True) if count}


def planned_parts(ranges: pa.Table) -> pa.Table:
    """Ranges of shape `REMOVED_RANGES` in shape `PLANNED_PARTS`: with rules by name."""
    return ranges.set_column(1, PLANNED_PARTS.field("rule"), rule_column(ranges["rule"].to_numpy()))


def numbered_parts(parts: pa.Table) -> pa.Table:
    """Ranges of shape `PLANNED_PARTS` in shape `REMOVED_RANGES`: with rules by number.

    Raises:
        ValueError: a name is not that of a rule.
    """
    numbers = pa.array(rule_numbers(parts["rule"]), RULE_NUMBER)
    return parts.set_column(1, REMOVED_RANGES.field("rule"), numbers).cast(REMOVED_RANGES)


@cache
def _names() -> pa.Array:
    """The names of all rules; created on first use, because Arrow's first array searches for pandas."""
    return pa.array(RULE_NAMES)
