"""Erasures of the Python API: planned, carried out, continued, and listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from retention.api.dry_run import DryRun
from retention.apply.erase import (
    ErasurePlan,
    ErasureRequest,
    erase_now,
    erasure_reports,
    plan_erasure,
    resume_erasures,
)
from retention.context.context import OpenedStream
from retention.engines.select import EngineName, Engines
from retention.tables.erase import (
    TableErasurePlan,
    TableErasureRequest,
    erase_rows,
    plan_table_erasure,
    resume_table_erasures,
)
from retention.tables.erased_rows import ChooseEngine
from retention.tables.opened import OpenedTable
from retention.views.notebook import ShownErasure
from retention.views.text_erase import erasure_plan_text, table_erasure_plan_text

PlannedErasure = DryRun[ErasurePlan, ShownErasure]
Picking = Callable[[Engines], ChooseEngine]
"""A function that gives, of some engines, the one for a number of bytes."""
DELETED = "delete with erasure"
"""The reason of an erasure by `delete`, which takes none."""


def planned_erasure(
    opened: OpenedStream, engine: EngineName | None, wanted: ErasureRequest
) -> PlannedErasure:
    """A planned erasure; `apply` carries it out."""

    def find() -> ErasurePlan:
        with Engines(engine) as engines:
            return plan_erasure(opened, wanted.messages, engines)

    return DryRun(find, partial(_erase, opened, engine, wanted), erasure_plan_text).looked()


def erasures_shown(opened: OpenedStream) -> list[ShownErasure]:
    """The erasures of a stream, oldest first."""
    return [ShownErasure(**vars(report)) for report in erasure_reports(opened)]


def resumed(
    opened: OpenedStream, engine: EngineName | None, archives_gone: Sequence[str]
) -> list[ShownErasure]:
    """Go on with the unfinished erasures of a stream; their reports."""
    with Engines(engine) as engines:
        reports = resume_erasures(opened, engines, archives_gone)
    return [ShownErasure(**vars(report)) for report in reports]


def planned_table_erasure(
    table: OpenedTable, engine: EngineName | None, pick: Picking, wanted: TableErasureRequest
) -> DryRun[TableErasurePlan, ShownErasure]:
    """A planned erasure of rows; `apply` carries it out."""

    def find() -> TableErasurePlan:
        with Engines(engine) as engines:
            return plan_table_erasure(table, wanted, pick(engines))

    def act() -> ShownErasure:
        with Engines(engine) as engines:
            return ShownErasure(**vars(erase_rows(table, wanted, pick(engines))))

    return DryRun(find, act, table_erasure_plan_text).looked()


def resumed_of_table(
    table: OpenedTable, engine: EngineName | None, pick: Picking
) -> list[ShownErasure]:
    """Go on with the unfinished erasures of a table; their reports."""
    with Engines(engine) as engines:
        reports = resume_table_erasures(table, pick(engines))
    return [ShownErasure(**vars(report)) for report in reports]


def _erase(opened: OpenedStream, engine: EngineName | None, wanted: ErasureRequest) -> ShownErasure:
    with Engines(engine) as engines:
        return ShownErasure(**vars(erase_now(opened, wanted, engines)))
