"""Plan files: a JSON document for review, and Parquet files next to it with actions, ranges and cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.documents import judge
from retention.core.policy import policy_from_json
from retention.core.read_count import ReadCount
from retention.core.record_tables import check_columns, check_file_records
from retention.core.stored_documents import PlanHeader
from retention.errors import DamagedError, RefusedError, StalePlanError, UsageError
from retention.plan.actions import DROP, REWRITE, Actions
from retention.plan.cause_codec import cause_as_json, cause_files, cause_from, cause_tables
from retention.plan.cause_files import CauseFiles
from retention.plan.consumer_snapshot import pins_as_json, pins_from_json
from retention.plan.header import Header, Pins, SegmentCounts
from retention.plan.loaded_ranges import loaded_ranges
from retention.plan.plan import FORMAT_VERSION, Plan
from retention.plan.protected import protected_from_json, protected_segments_from_json
from retention.plan.removed_ranges import RemovedRanges
from retention.plan.rule_rows import (
    numbered_parts,
    planned_parts,
    rule_column,
    rule_counts,
    rule_numbers,
)
from retention.plan.saved_tables import VerifiedTable, is_table, verified_table, write_table
from retention.rules.requests import as_json, from_json
from retention.schemas.plan import (
    PLANNED_FILES,
    PLANNED_MARKERS,
    PLANNED_PARTS,
    PLANNED_RULES,
    RULE,
    SAVED_CAUSE,
)
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.outputs import OutputKind, begins, check_output, is_stream, write_output
from retention.storage.places import place_of

_PLAN = pa.field("plan", pa.int32())
_ACTIONS = {DROP, REWRITE}
_TABLES = {
    "files": PLANNED_FILES,
    "rules": PLANNED_RULES,
    "removed": PLANNED_PARTS,
    "markers": PLANNED_MARKERS,
    "cause": SAVED_CAUSE,
}
KIND = "retention plan"
PLAN_FILE = OutputKind(
    "a saved plan", begins(rf'\s*\{{\s*"format_version":\s*\d+,\s*"kind":\s*"{KIND}"')
)
_TABLE_FILES = {
    part: OutputKind("a table of a saved plan", partial(is_table, {*schema.names, _PLAN.name}))
    for part, schema in _TABLES.items()
}
Gathered = TypeVar("Gathered")


def check_plan_file(location: str) -> None:
    """Refuse a location for saved plans if other content would be overwritten.

    Raises:
        UsageError: other content exists at `location`, or at the location of one of the tables next to it.
    """
    if is_stream(location):
        raise UsageError(f"{location}: a saved plan is several files; name a file on a disk")
    check_output(location, PLAN_FILE)
    for part, kind in _TABLE_FILES.items():
        check_output(_beside(place_of(location), part), kind)


def save_plans(location: str, plans: Sequence[Plan], **beside: str) -> None:
    """Write plans to `location` (JSON), and each of their tables to a Parquet file next to it.

    The JSON is written last, with the digests of these and `beside` it, so that a half-written plan is invalid.

    Raises:
        UsageError: as `check_plan_file`.
    """
    check_plan_file(location)
    location = place_of(location)
    digests = dict(beside)
    for part, schema in saved_schemas().items():
        digests[part] = write_table(_beside(location, part), schema, _numbered_tables(plans, part))
    document = {"format_version": FORMAT_VERSION, "kind": KIND, "sha256": digests}
    document |= {"plans": [_header(plan) for plan in plans]}
    text = json.dumps(document, indent=1, sort_keys=True).encode()
    write_output(location, PLAN_FILE, text + b"\n")


def _numbered_tables(plans: Sequence[Plan], part: str) -> Iterator[pa.Table]:
    """One of the tables of each plan, in pieces, with the number of the plan."""
    for number, plan in enumerate(plans):
        for table in _tables(plan, part):
            numbers = pa.array(np.full(table.num_rows, number), _PLAN.type)
            yield table.cast(_saved(_TABLES[part])).append_column(_PLAN, numbers)


def _tables(plan: Plan, part: str) -> Iterator[pa.Table]:
    if part == "cause":
        yield from cause_tables(plan.cause, _partly(plan))
    elif part == "removed":
        yield from map(planned_parts, plan.actions.removed.tables())
    else:
        yield getattr(plan.actions, part)


def saved_schemas() -> dict[str, pa.Schema]:
    """Name of each table next to a saved plan → its schema; `plan` is the number of the plan in the document."""
    return {part: _saved(schema).append(_PLAN) for part, schema in _TABLES.items()}


def _saved(schema: pa.Schema) -> pa.Schema:
    """A schema as stored in Parquet: rules are strings."""
    return pa.schema(
        [field.with_type(pa.string()) if field.type == RULE else field for field in schema]
    )


def _loaded(table: pa.Table) -> pa.Table:
    """A table of a saved plan in the schema of plans.

    Raises:
        ValueError: it names an unknown rule.
    """
    if "rule" not in table.schema.names:
        return table
    at, rules = table.schema.names.index("rule"), rule_column(rule_numbers(table["rule"]))
    return table.set_column(at, pa.field("rule", RULE, nullable=False), rules)


def _partly(plan: Plan) -> pa.Array:
    """Paths of the files with ranges in the plan."""
    partly = plan.actions.files.filter(pc.not_equal(plan.actions.files["action"], DROP))
    return partly["path"].combine_chunks()


def load_plans(location: str) -> list[Plan]:
    """Read saved plans.

    Raises:
        UsageError: there is no such file, or it is not a plan.
        RefusedError: a newer version of the program wrote it.
        DamagedError: the content differs from what was written.
    """
    location = place_of(location)
    document = _document(location)
    with _refusing_undecodable(location):
        return _plans(location, document)


@contextmanager
def _refusing_undecodable(location: str) -> Iterator[None]:
    """Refuse a saved plan that cannot be decoded."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_plan(location, f"a part of it is not as written ({error})") from error


def _refuse_released(location: str, header: Mapping[str, Any]) -> None:
    """Refuse a plan of an earlier build that released messages without rewriting their files.

    Raises:
        StalePlanError: it is one.
    """
    if header.get("released") or "release_share" in header["policy"]:
        raise StalePlanError(
            f"{location}: an earlier build made this plan of stream {header['stream']} with release_share, which this "
            "one does not know; nothing was changed; plan again"
        )


def _plans(location: str, document: dict[str, Any]) -> list[Plan]:
    headers = document["plans"]
    for header in headers:
        judge(PlanHeader, header)
        _refuse_released(location, header)
    contents = {part: _content(location, part, document["sha256"][part]) for part in _TABLES}
    causes = cache(partial(_by_plan, contents.pop("cause"), "cause", cause_files))
    ranges = _by_plan(contents.pop("removed"), "removed", _removed)
    tables = {part: _by_plan(content, part, pa.concat_tables) for part, content in contents.items()}
    plans = []
    for number, header in enumerate(headers):
        of_plan = {
            part: some.get(number, _TABLES[part].empty_table()) for part, some in tables.items()
        }
        removed = ranges.get(number, RemovedRanges())
        made_from = partial(_cause_files, location, causes, number)
        plans.append(_plan(header, Actions(**of_plan, removed=removed), made_from))
    for plan, header in zip(plans, headers, strict=True):
        _check_parts(plan)
        if plan.plan_id != header["plan_id"]:
            raise damaged_plan(
                location, f"the plan of {plan.header.stream} does not have the identity it claims"
            )
        differing = [name for name, value in _header(plan).items() if header.get(name) != value]
        if differing:
            raise damaged_plan(
                location,
                f"{', '.join(differing)} of the plan of {plan.header.stream} contradicts its parts",
            )
    return plans


def _check_parts(plan: Plan) -> None:
    """Refuse parts of a plan that no pass can produce.

    Raises:
        ValueError: naming the field that is wrong.
    """
    check_file_records(plan.actions.files, PLANNED_FILES)
    files_ = plan.actions.files
    actions = set(files_["action"].unique().to_pylist())
    if not actions <= _ACTIONS:
        raise ValueError(
            f"action is one of {', '.join(sorted(actions))}: {', '.join(sorted(_ACTIONS))} are known"
        )
    numbers = plan.actions.rules["file"].to_numpy()
    if (np.diff(numbers) < 0).any():
        raise ValueError("file is not in order")
    if (np.append(numbers, plan.actions.removed.files) >= len(files_)).any():
        raise ValueError("file names a row that does not exist")
    going, held = files_["removed_messages"].to_numpy(), files_["messages"].to_numpy()
    taken = rule_counts(plan.actions.rules, len(files_)).sum(axis=1)
    if (taken != going).any() or (going > held).any():
        raise ValueError("removed_messages is not the sum of the rules, or exceeds the messages")


def _removed(tables: Iterable[pa.Table]) -> RemovedRanges:
    """The ranges of one plan, from tables of the shape `PLANNED_PARTS`.

    Raises:
        ValueError: a row is not a valid range.
    """
    return loaded_ranges(numbered_parts(table) for table in _in_order(tables))


def _in_order(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    reached = 0
    for table in tables:
        numbers = table["file"].to_numpy()
        if (np.diff(numbers, prepend=reached) < 0).any():
            raise ValueError("file is not in order")
        if (table["first_seq"].to_numpy() > table["last_seq"].to_numpy()).any():
            raise ValueError("first_seq is above last_seq")
        reached = numbers[-1]
        yield table


def _header(plan: Plan) -> dict[str, object]:
    return plan.summary() | {
        "table_id": plan.header.table_id,
        "version": plan.header.version,
        "as_of_ns": plan.header.as_of_ns,
        "policy": plan.header.policy.as_json(),
        "files_read": plan.header.read.files,
        "bytes_read": plan.header.read.bytes,
        "sequences": None if plan.actions.sequences is None else list(plan.actions.sequences),
        "request": plan.header.request and as_json(plan.header.request),
        "consumers": pins_as_json(plan.pins.consumers),
        "expired": pins_as_json(plan.pins.expired),
        **({"holds": plan.pins.holds} if plan.pins.holds else {}),
        "epoch": plan.header.epoch,
        "begins_epoch": plan.header.begins_epoch,
        "cause": cause_as_json(plan.cause),
    }


def _cause_files(
    location: str, read: Callable[[], dict[int, CauseFiles]], number: int
) -> CauseFiles:
    """Decode the files of a plan's cause.

    Raises:
        DamagedError: their values are invalid.
    """
    with _refusing_undecodable(location):
        return read().get(number, CauseFiles())


def _by_plan(
    content: VerifiedTable,
    part: str,
    gather: Callable[[Iterator[pa.Table]], Gathered],
) -> dict[int, Gathered]:
    """Number of each plan with rows in one of the saved tables → `gather` of these rows, read in pieces."""
    numbered = (some for table in content.pieces() for some in _divided(table, part))
    return {
        number: gather(table for _, table in rows)
        for number, rows in groupby(numbered, key=lambda pair: pair[0])
    }


def _divided(table: pa.Table, part: str) -> Iterator[tuple[int, pa.Table]]:
    """Rows of a saved table by the number of their plan (adjacent rows), in the schema of plans.

    Raises:
        ValueError: they are not rows of a saved plan.
    """
    check_columns(table, _saved(_TABLES[part]).append(_PLAN))
    numbers = table["plan"].to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=False):
        yield int(numbers[start]), _loaded(table.slice(start, end - start).drop(["plan"]))


def _plan(header: dict[str, Any], actions: Actions, read_files: Callable[[], CauseFiles]) -> Plan:
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
            header.get("holds", 0),
        ),
        replace(actions, sequences=tuple(header["sequences"]) if header["sequences"] else None),
        cause_from(read_files, header["cause"]),
        held=protected_from_json(held),
        kept_by_holds=header.get("kept_by_holds"),
        held_segments=protected_segments_from_json(held),
    )


def _document(location: str) -> dict[str, Any]:
    content = files.read_bytes(location)
    if content is None:
        raise UsageError(
            f"{location}: there is no such stream and no such plan file; `retention state` lists streams"
        )
    try:
        document: dict[str, object] = parse_json(content)
        kind, version, plans = document["kind"], document["format_version"], document["plans"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{location}: not a plan file; `retention plan -o FILE` writes one"
        ) from error
    if kind != KIND or type(version) is not int:
        raise UsageError(f"{location}: not a plan file; `retention plan -o FILE` writes one")
    if not plans:
        raise UsageError(f"{location}: has no plan; nothing was changed; plan again")
    if version > FORMAT_VERSION:
        raise RefusedError(
            f"{location}: written in plan format {version}, this program knows formats up to {FORMAT_VERSION}; "
            "apply it with the program that wrote it, or plan again"
        )
    if version < FORMAT_VERSION:
        raise StalePlanError(
            f"{location}: written in plan format {version}, and its identity covers less than this program requires "
            f"(format {FORMAT_VERSION}); nothing was changed; plan again"
        )
    return document


def _content(location: str, part: str, sha256: str) -> VerifiedTable:
    beside = _beside(location, part)
    try:
        content = verified_table(beside, sha256)
    except FileNotFoundError as error:
        raise damaged_plan(beside, "it is missing") from error
    if content is None:
        raise damaged_plan(beside, "it is not as written")
    return content


def _beside(location: str, part: str) -> str:
    return f"{location}.{part}.parquet"


def damaged_plan(location: str, what: str) -> DamagedError:
    """The error of saved plans that are not as written."""
    return DamagedError(
        f"{location}: this saved plan is damaged: {what}; nothing was changed; plan again"
    )
