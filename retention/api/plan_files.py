"""Saved plans of streams and tables: one file, and beside it those of tables if it has plans of both."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from retention.plan.plan import Plan
from retention.plan.planfile import (
    check_plan_file,
    damaged_plan,
    load_plans,
    save_plans,
)
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.outputs import check_output
from retention.storage.places import place_of
from retention.tables.plan import TablePlan
from retention.tables.planfile import (
    TABLE_PLANS,
    is_of_tables,
    load_table_plans,
    save_table_plans,
)

_PART = "tables"


def check_location(location: str, *, streams: bool, tables: bool) -> None:
    """Refuse a location for saved plans if other content would be overwritten.

    Args:
        location: the file.
        streams: whether plans of streams are saved.
        tables: whether plans of tables are saved.

    Raises:
        UsageError: other content exists there, or at the location of a file next to it.
    """
    if streams or not tables:
        check_plan_file(location)
    if tables:
        check_output(_beside(location) if streams else location, TABLE_PLANS)


def save(location: str, plans: Sequence[Plan], tables: Sequence[TablePlan]) -> None:
    """Write plans of streams and tables to files that `load` reads.

    Raises:
        UsageError: as `check_location`.
    """
    if not plans and tables:
        save_table_plans(location, tables)
        return
    digests = {}
    if tables:
        save_table_plans(_beside(location), tables)
        digests[_PART] = _digest(location)
    save_plans(location, plans, **digests)


def load(location: str) -> tuple[list[Plan], list[TablePlan]]:
    """Read saved plans.

    Raises:
        UsageError: there is no such file, or it is not a plan.
        RefusedError: a newer version of the program wrote it.
        DamagedError: the content differs from what was written.
    """
    place = place_of(location)
    if is_of_tables(place):
        return [], load_table_plans(place)
    plans, digest = load_plans(location), _digest_in(place)
    if digest is None:
        return plans, []
    if _digest(location) != digest:
        raise damaged_plan(_beside(location), "it is not as written")
    return plans, load_table_plans(_beside(location))


def _digest_in(place: str) -> str | None:
    """The digest of the plans of tables that belong to verified plans of streams; None: there are none."""
    return parse_json(files.read_bytes(place) or b"")["sha256"].get(_PART)


def _digest(location: str) -> str:
    """SHA-256 of the plans of tables beside a file; of nothing if they are missing."""
    return hashlib.sha256(files.read_bytes(_beside(location)) or b"").hexdigest()


def _beside(location: str) -> str:
    return f"{place_of(location)}.{_PART}.json"
