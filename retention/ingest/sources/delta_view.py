"""A log of one entry that shows Spark chosen files of a Delta table, as a shallow clone of just those files would.

Delta's own reader then honours column mapping, deletion vectors, partition values and widened types, in every version
of Spark and by Spark Connect, where no reader takes a list of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from retention.ingest.sources.delta_follow import Add

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_DIGITS = 20
_NOT_NEEDED = ("v2Checkpoint", "vacuumProtocolCheck")
"""Reader features that concern the log and its cleanup, not the files."""
_READ = 3
"""The reader version from which a protocol names its features."""
_WRITERS = {1: 2, 2: 5}
"""Earlier reader version → the writer version that came with it."""
_MAPPING = "delta.columnMapping."


def view_entry(
    table: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any], adds: Iterable[Add]
) -> bytes:
    """The single entry of a log that shows some files of a table.

    Args:
        table: the table's location, as Spark writes it.
        protocol: its action `protocol`.
        metadata: its action `metaData`.
        adds: the files, as its log has them.
    """
    properties = metadata.get("configuration") or {}
    mapping = {name: value for name, value in properties.items() if name.startswith(_MAPPING)}
    shown = {**metadata, "configuration": mapping}
    actions = [{"protocol": _reading(protocol)}, {"metaData": shown}]
    actions += [{"add": _absolute(table, add)} for add in adds]
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def _reading(protocol: Mapping[str, Any]) -> dict[str, object]:
    """A protocol with the table's requirements on readers, and none on writers."""
    version = protocol["minReaderVersion"]
    if version < _READ:
        return {"minReaderVersion": version, "minWriterVersion": _WRITERS[version]}
    features = [name for name in protocol.get("readerFeatures") or () if name not in _NOT_NEEDED]
    return {
        "minReaderVersion": _READ,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }


def _absolute(table: str, add: Add) -> dict[str, object]:
    base = _uri(table)
    path = add["path"]
    shown = {**add, "path": path if _is_absolute(path) else f"{base}/{path}", "dataChange": True}
    vector = add.get("deletionVector")
    if vector and vector["storageType"] == "u":
        shown["deletionVector"] = {
            **vector,
            "storageType": "p",
            "pathOrInlineDv": f"{base}/{_vector_file(vector['pathOrInlineDv'])}",
        }
    return {
        name: value
        for name, value in shown.items()
        if name not in ("baseRowId", "defaultRowCommitVersion")
    }


def _vector_file(name: str) -> str:
    """The path of a deletion vector, relative to its table, which a log names by a prefix and a UUID in base 85."""
    prefix, digits = name[:-_UUID_DIGITS], name[-_UUID_DIGITS:]
    raw = b""
    for at in range(0, _UUID_DIGITS, 5):
        number = 0
        for digit in digits[at : at + 5]:
            number = number * len(_Z85) + _Z85.index(digit)
        raw += number.to_bytes(4, "big")
    directory = f"{quote(prefix)}/" if prefix else ""
    return f"{directory}deletion_vector_{UUID(bytes=raw)}.bin"


def _uri(place: str) -> str:
    scheme, separator, rest = place.rpartition("://")
    if separator:
        return f"{scheme}://{quote(rest)}"
    return f"file://{quote(place)}"


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or ":/" in path.partition("/")[0] + "/"
