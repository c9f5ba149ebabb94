"""Row ids of a table with row tracking: fresh ones of new files, and the columns that keep the ids of copied rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.errors import DamagedError

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
_ENABLED = "delta.enableRowTracking"
_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


def with_row_ids(
    adds: Iterable[Mapping[str, Any]], domains: Mapping[str, Mapping[str, Any]], version: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Give new files of one commit row ids above all ids so far.

    Args:
        adds: their `add` actions, each with `numRecords`; at least one.
        domains: the `domainMetadata` actions of the table, by domain.
        version: that of the commit.

    Returns:
        The `add` actions, and the `domainMetadata` action with the highest id.
    """
    highest = _highest(domains.get(DOMAIN))
    numbered = []
    for add in adds:
        numbered.append(
            {**add, "baseRowId": highest + 1, "defaultRowCommitVersion": version},
        )
        highest += json.loads(add["stats"])["numRecords"]
    configuration = json.dumps({"rowIdHighWaterMark": highest}, separators=(",", ":"))
    return numbered, {"domain": DOMAIN, "configuration": configuration, "removed": False}


def _highest(domain: Mapping[str, Any] | None) -> int:
    return -1 if domain is None else int(json.loads(domain["configuration"])["rowIdHighWaterMark"])


@dataclass(frozen=True)
class TrackedRows:
    """The ids and commit versions of one file's rows, and the columns for them in a copy."""

    id_column: str
    version_column: str
    base_row_id: int
    commit_version: int

    @classmethod
    def of(cls, metadata: Mapping[str, Any], add: Mapping[str, Any]) -> TrackedRows | None:
        """The rows of a file; None if the table does not track rows.

        Raises:
            DamagedError: the file has no ids though the table tracks rows.
        """
        properties = metadata.get("configuration") or {}
        if properties.get(_ENABLED, "").lower() != "true":
            return None
        try:
            return cls(
                properties[_ID_COLUMN],
                properties[_VERSION_COLUMN],
                add["baseRowId"],
                add["defaultRowCommitVersion"],
            )
        except KeyError as error:
            raise DamagedError(
                f"{add['path']}: the table tracks rows, but its log has no {error.args[0]} for this file; nothing was "
                "changed; have the table's owner unset delta.enableRowTracking, or set it again"
            ) from error

    def schema(self, given: pa.Schema) -> pa.Schema:
        """A file's schema with both columns."""
        for name in (self.id_column, self.version_column):
            if name not in given.names:
                given = given.append(pa.field(name, pa.int64()))
        return given

    def materialized(self, positions: np.ndarray, rows: pa.Table) -> pa.Table:
        """Rows with both columns filled: ids of earlier copies are kept, others follow from the position."""
        ids = pa.array(positions + self.base_row_id)
        versions = pa.array(np.full(len(positions), self.commit_version))
        for name, values in ((self.id_column, ids), (self.version_column, versions)):
            if name in rows.schema.names:
                at = rows.schema.names.index(name)
                filled = pc.coalesce(rows[name], values)
                rows = rows.set_column(at, rows.schema.field(name), filled)
            else:
                rows = rows.append_column(name, values)
        return rows
