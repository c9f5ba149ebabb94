"""Plans at rest: a JSON document that people review, and Parquet files beside it with actions, ranges and cause."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.documents import PlanHeader, judge
from retention.core.file_records import check_columns, check_file_records
from retention.core.inventory import ReadCount
from retention.core.policy import policy_from_json
from retention.errors import DamagedError, RefusedError, StalePlanError, UsageError
from retention.plan.actions import DROP, REWRITE, TOMBSTONE, Actions
from retention.plan.cause import CauseFiles
from retention.plan.cause_codec import cause_as_json, cause_files, cause_from, cause_table
from retention.plan.consumer_snapshot import pins_as_json, pins_from_json
from retention.plan.header import Header, Pins, SegmentCounts
from retention.plan.plan import FORMAT_VERSION, Plan
from retention.plan.protected import protected_from_json, protected_segments_from_json
from retention.plan.removed_ranges import RemovedRanges
from retention.plan.rule_rows import numbered_parts, rule_column, rule_counts, rule_numbers
from retention.rules.requests import as_json, from_json
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.places import place_of
from schemas.plan import (
    PLANNED_FILES,
    PLANNED_MARKERS,
    PLANNED_PARTS,
    PLANNED_RULES,
    RULE,
    SAVED_CAUSE,
)

_PLAN = pa.field("plan", pa.int32())
_NUMBERS = (pa.int32(), pa.int64())
_ACTIONS = {DROP, REWRITE, TOMBSTONE}
_TABLES = {
    "files": PLANNED_FILES,
    "rules": PLANNED_RULES,
    "removed": PLANNED_PARTS,
    "markers": PLANNED_MARKERS,
    "cause": SAVED_CAUSE,
}


def save_plans(location: str, plans: Sequence[Plan]) -> None:
    """Write plans to `location` (JSON), and a Parquet file beside it for each of their tables.

    The JSON comes last and carries the digests of the others, so that a half-written plan is not a plan.
    """
    location = place_of(location)
    digests = {}
    for part, schema in _TABLES.items():
        content = _parquet([_table(plan, part) for plan in plans], _saved(schema))
        files.replace(_beside(location, part), content)
        digests[part] = hashlib.sha256(content).hexdigest()
    document = {
        "format_version": FORMAT_VERSION,
        "kind": "retention plan",
        "sha256": digests,
        "plans": [_header(plan) for plan in plans],
    }
    files.replace(location, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def _table(plan: Plan, part: str) -> pa.Table:
    if part == "cause":
        return cause_table(plan.cause, _partly(plan))
    table: pa.Table = getattr(plan, part)
    return table.cast(_saved(_TABLES[part]))


def _saved(schema: pa.Schema) -> pa.Schema:
    """A shape as Parquet has it: rules are strings."""
    return pa.schema(
        [field.with_type(pa.string()) if field.type == RULE else field for field in schema]
    )


def _loaded(table: pa.Table) -> pa.Table:
    """A table of a saved plan as plans have it.

    Raises:
        ValueError: it names a rule that is none.
    """
    if "rule" not in table.column_names:
        return table
    at, rules = table.column_names.index("rule"), rule_column(rule_numbers(table["rule"]))
    return table.set_column(at, pa.field("rule", RULE, nullable=False), rules)


def _partly(plan: Plan) -> pa.Array:
    """Paths of the files of which the plan has the ranges."""
    partly = plan.files.filter(pc.not_equal(plan.files["action"], DROP))
    return partly["path"].combine_chunks()


def load_plans(location: str) -> list[Plan]:
    """Read plans back.

    Raises:
        UsageError: there is no such file, or it is no plan.
        RefusedError: a newer version of the program wrote it.
        DamagedError: what is read is not what was written.
    """
    location = place_of(location)
    document = _document(location)
    with _judged(location):
        return _plans(location, document)


@contextmanager
def _judged(location: str) -> Iterator[None]:
    """Refuse a saved plan that cannot be decoded."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(location, f"a part of it is not what was written ({error})") from error


def _plans(location: str, document: dict[str, Any]) -> list[Plan]:
    headers = document["plans"]
    for header in headers:
        judge(PlanHeader, header)
    contents = {part: _content(location, part, document["sha256"][part]) for part in _TABLES}
    read_cause = cache(partial(_table_of, "cause", contents.pop("cause")))
    tables = {part: _table_of(part, content) for part, content in contents.items()}
    plans = [
        _plan(header, number, tables, partial(_cause_files, location, read_cause, number))
        for number, header in enumerate(headers)
    ]
    for plan, header in zip(plans, headers, strict=True):
        _judge_parts(plan)
        if plan.plan_id != header["plan_id"]:
            raise _damaged(
                location, f"the plan of {plan.stream} does not have the identity it claims"
            )
        differing = [name for name, value in _header(plan).items() if header.get(name) != value]
        if differing:
            raise _damaged(
                location,
                f"{', '.join(differing)} of the plan of {plan.stream} is not what its parts say",
            )
    return plans


def _judge_parts(plan: Plan) -> None:
    """Refuse parts of a plan that no pass makes.

    Raises:
        ValueError: naming the field that is wrong.
    """
    check_file_records(plan.files, PLANNED_FILES)
    files_, removed = plan.files, plan.actions.removed.held
    actions = set(files_["action"].unique().to_pylist())
    if not actions <= _ACTIONS:
        raise ValueError(
            f"action is one of {', '.join(sorted(actions))}: {', '.join(sorted(_ACTIONS))} are known"
        )
    for table in (plan.rules, removed):
        numbers = table["file"].to_numpy()
        if (numbers >= len(files_)).any():
            raise ValueError("file names a row that is not there")
        if (np.diff(numbers) < 0).any():
            raise ValueError("file is not in order")
    going, held = files_["removed_messages"].to_numpy(), files_["messages"].to_numpy()
    taken = rule_counts(plan.rules, len(files_)).sum(axis=1)
    if (taken != going).any() or (going > held).any():
        raise ValueError("removed_messages is not what the rules take, or more than there are")
    if (removed["first_seq"].to_numpy() > removed["last_seq"].to_numpy()).any():
        raise ValueError("first_seq is behind last_seq")


def _header(plan: Plan) -> dict[str, Any]:
    return plan.summary() | {
        "table_id": plan.table_id,
        "version": plan.version,
        "as_of_ns": plan.as_of_ns,
        "policy": plan.policy.as_json(),
        "files_read": plan.read.files,
        "bytes_read": plan.read.bytes,
        "sequences": None if plan.sequences is None else list(plan.sequences),
        "request": plan.request and as_json(plan.request),
        "consumers": pins_as_json(plan.consumers),
        "expired": pins_as_json(plan.expired),
        "released": plan.released,
        "epoch": plan.epoch,
        "begins_epoch": plan.begins_epoch,
        "cause": cause_as_json(plan.cause),
    }


def _cause_files(location: str, read: Callable[[], pa.Table], number: int) -> CauseFiles:
    """Decode the files that a plan was made from.

    Raises:
        DamagedError: they are what no plan is made from.
    """
    with _judged(location):
        return cause_files(_rows_of(read(), number))


def _rows_of(table: pa.Table, number: int) -> pa.Table:
    """The rows of one plan of a saved table, which lie together."""
    start, end = np.searchsorted(table["plan"].to_numpy(), [number, number + 1])
    return _loaded(table.slice(start, end - start).drop(["plan"]))


def _plan(
    header: dict[str, Any],
    number: int,
    tables: dict[str, pa.Table],
    read_files: Callable[[], CauseFiles],
) -> Plan:
    plan_tables = {part: _rows_of(table, number) for part, table in tables.items()}
    removed = RemovedRanges(numbered_parts(plan_tables.pop("removed")))
    held = header.get("held")
    return Plan(
        Header(
            stream=header["stream"],
            table_id=header["table_id"],
            version=header["version"],
            as_of_ns=header["as_of_ns"],
            policy=policy_from_json(header["policy"]),
            request=from_json(header["request"]) if header["request"] else None,
            epoch=header["epoch"],
            begins_epoch=header["begins_epoch"],
            segments=SegmentCounts(**header["segments"]),
            read=ReadCount(header["files_read"], header["bytes_read"]),
        ),
        Pins(
            pins_from_json(header["consumers"]),
            pins_from_json(header["expired"]) or (),
            header["released"],
        ),
        Actions(
            **plan_tables,
            removed=removed,
            sequences=tuple(header["sequences"]) if header["sequences"] else None,
        ),
        cause_from(read_files, header["cause"]),
        held=protected_from_json(held),
        held_segments=protected_segments_from_json(held),
    )


def _document(location: str) -> dict[str, Any]:
    content = files.read_bytes(location)
    if content is None:
        raise UsageError(
            f"{location}: there is no such stream and no such plan file; `retention state` lists streams"
        )
    try:
        document: dict[str, Any] = parse_json(content)
        kind, version, plans = document["kind"], document["format_version"], document["plans"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{location}: not a plan file; `retention plan -o FILE` writes one"
        ) from error
    if kind != "retention plan" or type(version) is not int:
        raise UsageError(f"{location}: not a plan file; `retention plan -o FILE` writes one")
    if not plans:
        raise UsageError(f"{location}: holds no plan; nothing was changed; plan again")
    if version > FORMAT_VERSION:
        raise RefusedError(
            f"{location}: written in plan format {version}, this program knows formats up to {FORMAT_VERSION}; "
            "apply it with the program that wrote it, or plan again"
        )
    if version < FORMAT_VERSION:
        raise StalePlanError(
            f"{location}: written in plan format {version}, whose identity covers less than this program wants (format "
            f"{FORMAT_VERSION}); nothing was changed; plan again"
        )
    return document


def _content(location: str, part: str, sha256: str) -> bytes:
    beside = _beside(location, part)
    content = files.read_bytes(beside)
    if content is None or hashlib.sha256(content).hexdigest() != sha256:
        raise _damaged(beside, "it is missing" if content is None else "it is not what was written")
    return content


def _table_of(part: str, content: bytes) -> pa.Table:
    table = pq.read_table(pa.BufferReader(content))
    check_columns(table, _saved(_TABLES[part]).append(_PLAN))
    return table


def _parquet(tables: Sequence[pa.Table], schema: pa.Schema) -> bytes:
    numbered = [
        table.append_column("plan", pa.array([number] * table.num_rows, pa.int32()))
        for number, table in enumerate(tables)
    ]
    schema = schema.append(_PLAN)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.concat_tables([schema.empty_table(), *numbered]),
        sink,
        compression="zstd",
        use_dictionary=[name for name in ("action", "rule") if name in schema.names],
        column_encoding=_encodings(schema),
        write_statistics=False,
    )
    return sink.getvalue().to_pybytes()


def _encodings(schema: pa.Schema) -> dict[str, str]:
    """Encodings of columns of numbers and paths, which differ little from row to row."""
    leaves = {
        f"{field.name}.list.element": field.type.value_type
        for field in schema
        if pa.types.is_list(field.type)
    }
    leaves |= {field.name: field.type for field in schema}
    numbers = {leaf: "DELTA_BINARY_PACKED" for leaf, kind in leaves.items() if kind in _NUMBERS}
    return numbers | ({"path": "DELTA_BYTE_ARRAY"} if "path" in schema.names else {})


def _beside(location: str, part: str) -> str:
    return f"{location}.{part}.parquet"


def _damaged(location: str, what: str) -> DamagedError:
    return DamagedError(
        f"{location}: this saved plan is damaged: {what}; nothing was changed; plan again"
    )
