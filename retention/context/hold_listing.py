"""Whether a stream has legal holds, found without reading one."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.stores.hold_listing import record_names


def may_have_holds(opened: OpenedStream) -> bool:
    """Whether a stream has records of legal holds, its configuration has some, or there is a ledger."""
    return opened.ledger is not None or _has_some(opened)


def has_hold_records(opened: OpenedStream) -> bool:
    """Whether a stream has records of legal holds, also of ones that ended, or its configuration or ledger has some."""
    if _has_some(opened):
        return True
    if opened.ledger is None:
        return False
    from retention.context.holds import only_in_ledger

    return bool(only_in_ledger(opened))


def _has_some(opened: OpenedStream) -> bool:
    return bool(opened.config.written_holds) or bool(record_names(opened.root))
