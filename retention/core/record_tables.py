"""Tables of records of data files from outside: rows must fit their schema, and paths stay below `messages/`."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.file_records import PLACED, is_inside, quoted, record_problem
from retention.schemas.files import FILE_STATS

# The directories that the engine, Spark and deltalake create, then a file name without special
# characters.
_REGULAR = r"^partition=\d+/segment=\d+/[^/\\%\x00-\x1f\x7f]*[^/\\%.\x00-\x1f\x7f]$"
_IS_REGULAR = re.compile(_REGULAR, re.ASCII).fullmatch
_FEW_PATHS = 64
"""The number of paths up to which Arrow takes longer to compile the pattern than Python to look at each."""


def outside_mask(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A mask of the data file paths that lead out of `messages/`; a missing path counts as one."""
    if len(paths) > _FEW_PATHS:
        regular = pc.fill_null(pc.match_substring_regex(paths, _REGULAR), False)  # noqa: FBT003
        if pc.all(regular, min_count=0).as_py():
            return pc.invert(regular)
    texts = (path or "" for path in paths.to_pylist())
    return pa.array([not (_IS_REGULAR(path) or is_inside(path)) for path in texts], pa.bool_())


def first_outside(paths: pa.Array | pa.ChunkedArray) -> str | None:
    """The first of the data file paths that lead out of `messages/`; None: none does."""
    at = np.flatnonzero(outside_mask(paths).to_numpy(zero_copy_only=False))
    return str(paths[int(at[0])].as_py()) if len(at) else None


ANY_SIGN = {"bytes", *(field.name for field in FILE_STATS if field.name.endswith("_ns"))}
"""Columns that may be negative: times, and sums of sizes (older versions let them overflow on hostile sizes)."""


def check_file_records(table: pa.Table, schema: pa.Schema) -> None:
    """Check a table of data files against its schema, row by row.

    Raises:
        ValueError: a field does not fit; names the first one, and its value.
    """
    check_columns(table, schema)
    doubled = len(table) - len(table["path"].unique())
    if doubled:
        raise ValueError(f"path names a file a second time in {doubled} rows")
    places = pc.extract_regex(table["path"].combine_chunks(), PLACED.pattern)
    fits = pc.or_(pc.equal(table["messages"], 0), pc.less_equal(table["min_seq"], table["max_seq"]))
    for name in ("partition", "segment"):
        written = pc.struct_field(places, name)
        fits = pc.and_(fits, pc.equal(written, table[name].cast(pa.string()).combine_chunks()))
    for row in table.filter(pc.invert(pc.fill_null(fits, False))).to_pylist():  # noqa: FBT003
        problem = record_problem(row)
        if problem is not None:
            raise ValueError(problem)


def check_ranges(table: pa.Table, schema: pa.Schema) -> None:
    """Check a table of ranges of files (`RUN_RANGES`) against its schema, row by row.

    Raises:
        ValueError: a field does not fit; names the first one.
    """
    check_columns(table, schema)
    if pc.any(pc.greater(table["first_seq"], table["last_seq"])).as_py():
        raise ValueError("first_seq is above last_seq")
    for name, other in (("rules", "counts"), ("except_firsts", "except_lasts")):
        lengths = (pc.list_value_length(table[of]) for of in (name, other))
        if pc.any(pc.not_equal(*lengths)).as_py():
            raise ValueError(f"{name} and {other} differ in number")
        if any(pc.list_flatten(table[of]).null_count for of in (name, other)):
            raise ValueError(f"{name} or {other} has a value missing")
    if pc.any(pc.less(pc.list_flatten(table["counts"]), 0)).as_py():
        raise ValueError("counts has a number below 0")
    _refuse_unordered(table["except_firsts"], table["except_lasts"])


def _refuse_unordered(firsts: pa.ChunkedArray, lasts: pa.ChunkedArray) -> None:
    """Refuse rows with a list of ranges that is invalid, or not ascending and disjoint."""
    low, high = (pc.list_flatten(ends).to_numpy() for ends in (firsts, lasts))
    row = pc.list_parent_indices(firsts).to_numpy()
    follows = row[1:] == row[:-1]
    if (low > high).any() or (follows & (low[1:] <= high[:-1])).any():
        raise ValueError("except_firsts and except_lasts are not ascending ranges of sequences")


def check_columns(table: pa.Table, schema: pa.Schema) -> None:
    """Check the columns of a table against its schema: names, types, nulls, ranges, and where paths lead.

    Raises:
        ValueError: a column does not fit; names the first one, and its value.
    """
    if not table.schema.equals(schema):
        there = dict(zip(table.schema.names, table.schema.types, strict=True))
        differing = [field.name for field in schema if there.get(field.name) != field.type]
        raise ValueError(f"{', '.join(differing) or 'its columns'} are not as they must be")
    _check_values(table, schema)
    if "path" in schema.names:
        outside = table["path"].filter(outside_mask(table["path"]))
        if len(outside):
            raise ValueError(
                f"path is {quoted(outside[0].as_py())}: leads outside the stream's directory"
            )


def _check_values(table: pa.Table, schema: pa.Schema) -> None:
    for field in schema:
        if not field.nullable and table[field.name].null_count:
            raise ValueError(f"{field.name} is missing in a row")
    for field in schema:
        name = field.name.removeprefix("stored_")
        if pa.types.is_integer(field.type) and name not in ANY_SIGN and not name.endswith("bytes"):
            lowest = pc.min(table[field.name]).as_py()
            if lowest is not None and lowest < 0:
                raise ValueError(f"{field.name} is {lowest}: the least is 0")
