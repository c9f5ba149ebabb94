"""Tables without rows: Arrow builds one column by column, which takes as long as a small operation on it."""

from __future__ import annotations

from functools import cache

import pyarrow as pa


@cache
def empty_table(schema: pa.Schema) -> pa.Table:
    """The table of a fixed shape without rows; made once, because tables are immutable."""
    return schema.empty_table()
