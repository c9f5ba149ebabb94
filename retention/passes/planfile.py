"""Plans at rest: a JSON document that people review, and Parquet files beside it with files, ranges and markers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention import files
from retention.errors import DamagedError, RefusedError, UsageError
from retention.passes.audience import pins_as_json, pins_from_json
from retention.passes.held import held_from_json, held_segments_from_json
from retention.passes.plan import FORMAT_VERSION, Plan, SegmentCounts
from retention.policy import policy_from_json
from retention.rules.removal import as_json, from_json
from retention.segments import ReadCount
from retention.stores.layout import leaving
from schemas.plan import PLANNED_FILES, PLANNED_MARKERS, REMOVED_RANGES

_PARTS = {"files": PLANNED_FILES, "removed": REMOVED_RANGES, "markers": PLANNED_MARKERS}


def save_plans(location: str, plans: Sequence[Plan]) -> None:
    """Write plans to `location` (JSON), and to `location`.files.parquet, .removed.parquet and .markers.parquet.

    The JSON comes last and carries the digests of the others, so that a half-written plan is not a plan.
    """
    digests = {}
    for part, schema in _PARTS.items():
        content = _parquet([getattr(plan, part) for plan in plans], schema)
        files.replace(_beside(location, part), content)
        digests[part] = hashlib.sha256(content).hexdigest()
    document = {
        "format_version": FORMAT_VERSION,
        "kind": "retention plan",
        "sha256": digests,
        "plans": [_header(plan) for plan in plans],
    }
    files.replace(location, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def load_plans(location: str) -> list[Plan]:
    """Read plans back.

    Raises:
        UsageError: there is no such file, or it is no plan.
        RefusedError: a newer version of the program wrote it.
        DamagedError: what is read is not what was written.
    """
    document = _document(location)
    try:
        return _plans(location, document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(location, f"a part of it is not what was written ({error})") from error


def _plans(location: str, document: dict[str, Any]) -> list[Plan]:
    tables = {part: _part(location, part, document["sha256"][part]) for part in _PARTS}
    plans = [_plan(header, number, tables) for number, header in enumerate(document["plans"])]
    for plan, header in zip(plans, document["plans"], strict=True):
        outside = plan.files["path"].filter(leaving(plan.files["path"]))
        if len(outside):
            raise _damaged(
                location,
                f"the plan of {plan.stream} names {outside[0].as_py()}, outside the stream's directory",
            )
        if plan.plan_id != header["plan_id"]:
            raise _damaged(
                location, f"the plan of {plan.stream} does not have the identity it claims"
            )
    return plans


def _header(plan: Plan) -> dict[str, Any]:
    return plan.summary() | {
        "table_id": plan.table_id,
        "version": plan.version,
        "as_of_ns": plan.as_of_ns,
        "policy": plan.policy.as_json(),
        "files_read": plan.read.files,
        "bytes_read": plan.read.bytes,
        "sequences": plan.sequences,
        "request": plan.request and as_json(plan.request),
        "consumers": pins_as_json(plan.consumers),
        "expired": pins_as_json(plan.expired),
        "released": plan.released,
        "epoch": plan.epoch,
        "begins_epoch": plan.begins_epoch,
    }


def _plan(header: dict[str, Any], number: int, tables: dict[str, pa.Table]) -> Plan:
    mine = {
        part: table.filter(pc.equal(table["plan"], number)).drop(["plan"])
        for part, table in tables.items()
    }
    return Plan(
        stream=header["stream"],
        table_id=header["table_id"],
        version=header["version"],
        as_of_ns=header["as_of_ns"],
        policy=policy_from_json(header["policy"]),
        segments=SegmentCounts(**header["segments"]),
        read=ReadCount(header["files_read"], header["bytes_read"]),
        sequences=tuple(header["sequences"]) if header["sequences"] else None,
        request=from_json(header["request"]) if header["request"] else None,
        consumers=pins_from_json(header["consumers"]),
        expired=pins_from_json(header.get("expired", [])) or (),
        released=header.get("released", 0),
        epoch=header.get("epoch", 0),
        begins_epoch=header.get("begins_epoch", False),
        held=held_from_json(header.get("held")),
        held_segments=held_segments_from_json(header.get("held")),
        **{part: table.cast(_PARTS[part]) for part, table in mine.items()},
    )


def _document(location: str) -> dict[str, Any]:
    content = files.read_bytes(location)
    if content is None:
        raise UsageError(
            f"{location}: there is no such stream and no such plan file; `retention state` lists streams"
        )
    try:
        document: dict[str, Any] = json.loads(content)
        kind, version = document["kind"], document["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{location}: not a plan file; `retention plan -o FILE` writes one"
        ) from error
    if kind != "retention plan":
        raise UsageError(f"{location}: not a plan file; `retention plan -o FILE` writes one")
    if version > FORMAT_VERSION:
        raise RefusedError(
            f"{location}: written in plan format {version}, this program knows formats up to {FORMAT_VERSION}; "
            "apply it with the program that wrote it, or plan again"
        )
    if version < FORMAT_VERSION:
        raise RefusedError(
            f"{location}: written in plan format {version}, which knew fewer rules than this program (format "
            f"{FORMAT_VERSION}); nothing was changed; plan again"
        )
    return document


def _part(location: str, part: str, sha256: str) -> pa.Table:
    beside = _beside(location, part)
    content = files.read_bytes(beside)
    if content is None or hashlib.sha256(content).hexdigest() != sha256:
        raise _damaged(beside, "it is missing" if content is None else "it is not what was written")
    return pq.read_table(pa.BufferReader(content))


def _parquet(tables: Sequence[pa.Table], schema: pa.Schema) -> bytes:
    numbered = [
        table.append_column("plan", pa.array([number] * table.num_rows, pa.int32()))
        for number, table in enumerate(tables)
    ]
    empty = schema.empty_table().append_column("plan", pa.array([], pa.int32()))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables([empty, *numbered]), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _beside(location: str, part: str) -> str:
    return f"{location}.{part}.parquet"


def _damaged(location: str, what: str) -> DamagedError:
    return DamagedError(
        f"{location}: this saved plan is damaged: {what}; nothing was changed; plan again"
    )
