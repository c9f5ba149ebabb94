"""Predicted refusals: the sentence with which a plan would be refused now."""

from __future__ import annotations

from retention.apply.guards import Guards, check_instant, check_update, guarded
from retention.context.context import OpenedStream
from retention.context.ownership import refuse_other_owner
from retention.errors import BusyError, RefusedError
from retention.history.runs import history_of
from retention.plan.plan import Plan


def refusal_of(opened: OpenedStream, plan: Plan, guards: Guards) -> str | None:
    """The sentence with which a pass would be refused if it were applied now; None: it would be accepted.

    Args:
        opened: the stream.
        plan: the pass, planned from its table.
        guards: the refusals that the caller lifts.

    Raises:
        DamagedError: a record cannot be read.
    """
    history = history_of(opened.warehouse, opened.name)
    try:
        refuse_other_owner(opened)
        check_instant(opened, history, plan.header.as_of_ns, guards)
        if opened.table.exists() and opened.is_listed:
            check_update(opened, history)
        guarded(opened, plan, guards)
    except BusyError:  # another run was faster: planned again, it is not refused
        return None
    except RefusedError as error:
        return str(error)
    return None
