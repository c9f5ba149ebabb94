"""Whether a stream may have legal holds, without reading a record."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.stores.hold_listing import record_names


def may_have_holds(opened: OpenedStream) -> bool:
    """Whether a stream has records of legal holds, its configuration has some, or a ledger may have some."""
    is_written = bool(opened.config.written_holds)
    return is_written or opened.ledger is not None or bool(record_names(opened.root))
