"""Features and properties of tables from which nothing may be removed by an entry of the engine, each by name."""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow.compute as pc

from retention.delta.protocol_versions import FEATURE_READER, FEATURE_WRITER
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import RefusedError
from retention.storage.places import hadoop_place

ALLOWED = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "icebergCompatV2",
        "icebergCompatV3",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "materializePartitionColumns",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""Features with which removals, vectors and copies of files were tried."""

_COORDINATED = "delta.coordinatedCommits."
_APPEND_ONLY = "delta.appendOnly"
_CATALOG = {"catalogManaged", "catalogOwned", "catalogOwned-preview"}
ABSOLUTE = r"^([A-Za-z][A-Za-z0-9+.-]*:/|/)"
"""The beginning of a path that does not lie below its table."""


def refusal(snapshot: DeltaSnapshot) -> str | None:
    """The sentence that refuses removals from a table; None if they are safe.

    Args:
        snapshot: the table.
    """
    reason = _of_protocol(snapshot) or _of_properties(snapshot) or _of_files(snapshot)
    return None if reason is None else f"{snapshot.root}: {reason}"


def refuse_unsafe(snapshot: DeltaSnapshot) -> None:
    """Refuse removals from a table to which an entry of ours could do damage.

    Raises:
        RefusedError: names the feature, the property or the file.
    """
    sentence = refusal(snapshot)
    if sentence is not None:
        raise RefusedError(sentence)


def unused(snapshot: DeltaSnapshot) -> set[str]:
    """The features that an older protocol implies, of a table whose properties do not use them."""
    return set() if snapshot.is_set(_APPEND_ONLY) else {"appendOnly"}


def _of_protocol(snapshot: DeltaSnapshot) -> str | None:
    reader = snapshot.protocol.get("minReaderVersion", 1)
    writer = snapshot.protocol["minWriterVersion"]
    if reader > FEATURE_READER or writer > FEATURE_WRITER:
        return (
            f"the table's protocol has reader version {reader} and writer version {writer}, and this release knows "
            f"those up to {FEATURE_READER} and {FEATURE_WRITER}; nothing was changed; use a later release"
        )
    managed = sorted(snapshot.features & _CATALOG)
    if managed:
        return (
            f"a catalog commits to this table ({managed[0]}), and an entry that it did not write is lost or "
            "damages the table; nothing was changed; remove the rows through the catalog, with DELETE"
        )
    unknown = sorted(snapshot.features - ALLOWED)
    if unknown:
        return (
            f"the table uses {', '.join(unknown)}, and what an entry must do for that is unknown to this release; "
            "nothing was changed; use a later release, drop that table feature, or remove the rows with DELETE"
        )
    return None


def _of_properties(snapshot: DeltaSnapshot) -> str | None:
    coordinated = sorted(name for name in snapshot.properties if name.startswith(_COORDINATED))
    if coordinated:
        return (
            f"a commit coordinator decides about its commits ({coordinated[0]}), and it would not know of an entry of "
            "this program; nothing was changed; remove the rows with DELETE, or unset the properties "
            f"{_COORDINATED}*"
        )
    if snapshot.is_set(_APPEND_ONLY):
        return (
            f"{_APPEND_ONLY} is true, so nothing may be removed from this table; nothing was changed; unset that table "
            "property if rows may go"
        )
    return None


def _of_files(snapshot: DeltaSnapshot) -> str | None:
    """The refusal of files and vectors outside the table: a shallow clone shares them with its source."""
    vectors = snapshot.files["vector"]
    is_absolute = pc.fill_null(
        pc.equal(pc.struct_field(vectors, "storageType"), "p"), fill_value=False
    )
    named = (
        snapshot.files["path"],
        pc.struct_field(vectors, "pathOrInlineDv").filter(is_absolute),
    )
    inside = hadoop_place(snapshot.root).rstrip("/") + "/"
    for paths in named:
        for path in paths.filter(pc.match_substring_regex(paths, ABSOLUTE)).to_pylist():
            if not hadoop_place(unquote(path)).startswith(inside):
                return (
                    f"its file {path} lies outside of it, as in a shallow clone, so that another table may use it; "
                    "nothing was changed; make a deep clone, or remove the rows with DELETE"
                )
    return None
