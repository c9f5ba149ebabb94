"""A requested removal planned and carried out in one step."""

from __future__ import annotations

from functools import partial

from retention.apply.execution import ExecutionTerms
from retention.apply.guards import check_update
from retention.apply.recover import settle_interrupted
from retention.apply.run import until_committed
from retention.context.context import OpenedStream
from retention.context.maintenance import removing
from retention.core.labels import on_stream
from retention.engines.select import Engines
from retention.history.report import RunReport
from retention.history.runs import history_of
from retention.planners.request_guards import check_allowed
from retention.planners.requests import plan_removal
from retention.rules.requests import Request


@on_stream
def remove_now(opened: OpenedStream, request: Request, engines: Engines) -> RunReport:
    """Plan and carry out a requested removal, under the stream's maintenance lease.

    Raises:
        UsageError: a message to be deleted is not in the stream.
        RefusedError: the stream's configuration denies it, or a guard of the table.
        BusyError, VerificationError: as `apply_now`.
    """
    started = opened.clock()
    history = history_of(opened.warehouse, opened.name)
    check_allowed(opened, request)
    with removing(opened):
        settle_interrupted(opened, history)
        check_update(opened, history)
        decide = partial(plan_removal, opened, request, engines)
        return until_committed(opened, decide, ExecutionTerms(engines), history, started)
