"""Erasures of the Python API: planned, carried out, continued, and listed."""

from __future__ import annotations

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
from retention.views.notebook import ShownErasure
from retention.views.text_erase import erasure_plan_text

PlannedErasure = DryRun[ErasurePlan, ShownErasure]
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


def resumed(opened: OpenedStream, engine: EngineName | None) -> list[ShownErasure]:
    """Go on with the unfinished erasures of a stream; their reports."""
    with Engines(engine) as engines:
        return [ShownErasure(**vars(report)) for report in resume_erasures(opened, engines)]


def _erase(opened: OpenedStream, engine: EngineName | None, wanted: ErasureRequest) -> ShownErasure:
    with Engines(engine) as engines:
        return ShownErasure(**vars(erase_now(opened, wanted, engines)))
