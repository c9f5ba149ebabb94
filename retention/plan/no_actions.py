"""The actions of a plan that changes nothing: what `Actions` without rows says, but no tables, which need Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from retention.plan.header_digest import header_digest

if TYPE_CHECKING:
    import pyarrow as pa

    from retention.plan.actions import Actions

_TABLES_WITHOUT_ROWS = bytes(8 * (3 + 29))
"""The content of the three tables in an identity: how many rows each has, and how many nulls each of its columns."""


class NoActions:
    """The part of `Actions` that a plan without any is asked for."""

    file_count = marker_count = removed_messages = removed_bytes = bytes_rewritten = 0
    sequences = None

    @property
    def by_rule(self) -> dict[str, int]:
        """Return an empty dict: no rule removes a message."""
        return {}

    def by_rule_of(self, files: pa.Array) -> dict[str, int]:
        """Return an empty dict: no rule removes a message."""
        del files
        return {}

    def identity(self, header: Mapping[str, object]) -> str:
        """The identity of a plan without actions under a header."""
        digest = header_digest(header)
        digest.update(_TABLES_WITHOUT_ROWS)
        return digest.hexdigest()

    def tables(self) -> Actions:
        """The actions as tables without rows."""
        from retention.plan.actions import Actions

        return Actions()


NO_ACTIONS = NoActions()
