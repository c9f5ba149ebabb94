"""The published schemas of the reports of jobs (`--report-file`), from the shapes of their entries."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from retention.apply.reclaim.report import Amount
from retention.consumers.ack_fold import FoldReport
from retention.consumers.ack_subject import Malformed
from retention.core.dropped import StreamDrop
from retention.history.compaction_report import CompactionReport
from retention.history.report import FORMAT_VERSION, KIND, RunReport
from retention.ingest.mirror.pull import PullResult
from retention.ingest.sync.iggy.result import PartitionSynced
from retention.ingest.sync.missed import MissedRange
from retention.ingest.table_source import Ingested
from retention.plan.ahead_of_clock import AheadOfClock
from retention.plan.extent import Extent
from retention.plan.forecast import Due
from retention.plan.lowered import LoweredLimit
from retention.plan.overdue import Overdue
from retention.rules.removal_guards import GuardFinding
from retention.verify.finding import Damage, Unverified, Verification

Schema = dict[str, Any]

DRAFT: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
_BOOLEAN: Schema = {"type": "boolean"}
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_OBJECT: Schema = {"type": "object"}
_STRING: Schema = {"type": "string"}


def report_schemas() -> dict[str, Schema]:
    """Name of each file → the schema of a job's report."""
    entries = {
        "plan": _plan(),
        "compact": _compacted(),
        "reclaim": _reclaimed(),
        "mirror": _mirrored(),
        "sync": _synced(),
        "verify": _verified("stream"),
    }
    tables = {
        "plan": _planned_table(),
        "reclaim": _reclaimed_table(),
        "verify": _verified("table"),
    }
    streams = {
        f"report.{job}.schema.json": _report(
            job,
            {"as_of_ns": _INTEGER, "streams": _list(entry)},
            {"tables": _list(tables[job])} if job in tables else {},
        )
        for job, entry in entries.items()
    }
    return streams | {
        "report.schema.json": _retained(),
        "report.ingest.schema.json": _report("ingest", _fields(Ingested) | {"seconds": _NUMBER}),
        "report.fold.schema.json": _report("fold", {"logs": _list(_folded()), "seconds": _NUMBER}),
        "report.doctor.schema.json": _report("doctor", {"findings": _list(_finding())}),
    }


def document_schema(
    title: str, properties: Schema, required: list[str], definitions: Schema
) -> Schema:
    """The schema of a JSON document without other keys."""
    shape = {"title": title, "type": "object", "properties": properties, "required": required}
    return DRAFT | shape | {"additionalProperties": False, "$defs": definitions}


def _report(job: str, properties: Schema, optional: Schema | None = None) -> Schema:
    """The schema of a job's report: its properties, or the error of a job that failed as a whole."""
    common = {"format_version": {"const": FORMAT_VERSION}, "kind": {"const": KIND}}
    document = document_schema(
        f"The report of the job {job}, format {FORMAT_VERSION}",
        common | properties | (optional or {}) | {"error": _ERROR},
        ["format_version"],
        {},
    )
    return document | {"anyOf": [{"required": list(properties)}, {"required": ["error"]}]}


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    """The schema of an object without other keys."""
    properties = required | (optional or {})
    shape = {"type": "object", "properties": properties, "required": list(required)}
    return shape | {"additionalProperties": False}


_ERROR = _object({"exit_code": _INTEGER, "message": _STRING})
_FAILED = _object({"stream": _STRING, "error": _ERROR})
"""A stream that failed: nothing was changed."""


def _fields(shape: type) -> Schema:
    """Name of each field of a dataclass → its schema."""
    return {
        name: {key: value for key, value in schema.items() if key not in {"title", "default"}}
        for name, schema in TypeAdapter(shape).json_schema()["properties"].items()
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _retained() -> Schema:
    """The report of a pass: `jobs.retain --report-file` and `apply --format json`."""
    stream = TypeAdapter(RunReport).json_schema(ref_template="#/$defs/{model}")
    del stream["properties"]["as_of_ns"]  # stands once, in the document
    stream["required"].remove("as_of_ns")
    stream["properties"]["earlier_try"] = _OBJECT
    stream["additionalProperties"] = False
    failed = _OBJECT | {
        "title": "A stream that failed: nothing was removed",
        "properties": {"stream": _STRING, "error": _ERROR},
        "required": ["stream", "error"],
    }
    return _report(
        "retain",
        {"as_of_ns": _INTEGER, "streams": _list({"anyOf": [stream, failed]})},
        {"compactions": _list(_compacted()), "tables": _list(_planned_table())},
    )


def _verified(kind: str) -> Schema:
    """The entry of a verification: its result, or the error of a stream or table that could not be verified."""
    fields = _fields(Verification)
    named = {kind: _STRING, "verdict": {"enum": ["ok", "unverified", "damaged"]}}
    numbers = {name: schema for name, schema in fields.items() if name not in ("name", "kind")}
    lists = {
        "damages": _list(_object(_fields(Damage))),
        "unverified": _list(_object(_fields(Unverified))),
    }
    failed = _object({kind: _STRING, "error": _ERROR, "seconds": _NUMBER})
    return {"anyOf": [_object(named | numbers | lists | {"seconds": _NUMBER}), failed]}


def _plan() -> Schema:
    numbers = _fields(RunReport)
    sums = ("removed_messages", "removed_bytes", "by_rule", "segments", "markers")
    costs = ("deleted_consumers", "files_read", "bytes_read", "bytes_written", "seconds")
    group = (
        "partition",
        "first_segment",
        "last_segment",
        "segments",
        "messages",
        "removed_messages",
    )
    reasons = {"by_rule": _map(_INTEGER), "reasons": _list(_STRING)}
    return _object(
        {
            "stream": _STRING,
            "plan_id": _or_null(_STRING),
            **{name: numbers[name] for name in sums + costs},
            **dict.fromkeys(("version_before", "version_after", "next_due_ns"), _or_null(_INTEGER)),
            "due": _list(_object(_fields(Due))),
            "groups": _list(_object(dict.fromkeys(group, _INTEGER) | reasons)),
        },
        {
            "would_change": _BOOLEAN,
            "extent": _or_null(_object(_fields(Extent))),
            "grace": _STRING,
            **dict.fromkeys(("needs_approval", "refused"), _or_null(_STRING)),
            "held": _OBJECT,
            "dropped": _object(_fields(StreamDrop)),
            "overdue": _object(_fields(Overdue)),
            "guards": _list(_guard("messages")),
            "kept_by_holds": _map(_INTEGER),
            "lowered": _list(_object(_fields(LoweredLimit))),
            "ahead_of_clock": _list(_object(_fields(AheadOfClock))),
            "error": _ERROR,
        },
    )


def _guard(noun: str) -> Schema:
    """The schema of an exceeded guard, of messages or rows."""
    of_finding = {name: schema for name, schema in _fields(GuardFinding).items() if name != "unit"}
    named = {name.replace("messages", noun): schema for name, schema in of_finding.items()}
    return _object(named | {"sentence": _STRING})


def _planned_table() -> Schema:
    """The entry of a table in the reports of plans and passes."""
    counts = ("removed_rows", "removed_bytes", "files_read", "bytes_read", "bytes_written")
    known = ("rows", "rows_without_time", "rows_without_key", "rows_without_size")
    return _object(
        {
            "table": _STRING,
            "plan_id": _or_null(_STRING),
            **dict.fromkeys(counts, _INTEGER),
            "by_rule": _map(_INTEGER),
            "files": _object(dict.fromkeys(("dropped", "cut", "kept"), _INTEGER)),
            "seconds": _NUMBER,
            **dict.fromkeys(("version_before", "version_after"), _or_null(_INTEGER)),
        },
        {
            **dict.fromkeys((*known, "rows_ahead_of_clock"), _INTEGER),
            **dict.fromkeys(("location", "run", "spent_by", "grace"), _STRING),
            **dict.fromkeys(("needs_approval", "refused"), _or_null(_STRING)),
            "would_change": _BOOLEAN,
            "files_passed_over": _map(_INTEGER),
            "kept_by_holds": _map(_INTEGER),
            "expired_holds": _list(_STRING),
            "guards": _list(_guard("rows")),
            **dict.fromkeys(("left", "superseded_by", "earlier_try"), _OBJECT),
            "error": _ERROR,
        },
    )


def _reclaimed_table() -> Schema:
    amount = _object(_fields(Amount))
    done = _object(
        {
            **dict.fromkeys(("table", "location"), _STRING),
            "run": _or_null(_STRING),
            "done": _BOOLEAN,
            "grace_ns": _INTEGER,
            **_fields(Amount),
            "staying": _map(amount),
            "history": amount,
            "seconds": _NUMBER,
        }
    )
    return {"anyOf": [done, _object({"table": _STRING, "error": _ERROR, "seconds": _NUMBER})]}


def _compacted() -> Schema:
    unused = {"dead_bytes": {"const": 0}, "left": _list(_OBJECT) | {"maxItems": 0}}
    return {"anyOf": [_object(_fields(CompactionReport) | unused), _FAILED]}


def _reclaimed() -> Schema:
    amount = _object(_fields(Amount))
    return _object(
        {
            "stream": _STRING,
            "run": _or_null(_STRING),
            "done": _BOOLEAN,
            "grace_ns": _or_null(_INTEGER),
            **_fields(Amount),
            **dict.fromkeys(("by_reason", "staying"), _map(amount)),
            "seconds": _NUMBER,
        },
        {"error": _ERROR, "kept_by_holds": _map(_INTEGER)},
    )


def _mirrored() -> Schema:
    counts = dict.fromkeys(("messages", "bytes", "skipped", "missing", "rolled_up"), _INTEGER)
    bounds = dict.fromkeys(("first_seq", "last_seq"), _or_null(_INTEGER))
    origins = {"origins": _list(_object(_fields(PullResult)))}
    return _object(
        {"stream": _STRING} | counts | bounds | origins, {"seconds": _NUMBER, "error": _ERROR}
    )


def _synced() -> Schema:
    counts = dict.fromkeys(("messages", "bytes", "commits", "missed"), _INTEGER)
    texts = dict.fromkeys(("origin", "created", "ended"), _or_null(_STRING))
    bounds = dict.fromkeys(("position", "last_seq", "behind"), _or_null(_INTEGER))
    missed = _object(_fields(MissedRange), {"partition": _INTEGER})
    lists = {"missed_ranges": _list(missed), "notes": _list(_STRING)}
    partitions = _list(_object(_fields(PartitionSynced)))
    return _object(
        {"stream": _STRING, "restored": _BOOLEAN} | counts | texts | bounds | lists,
        {"seconds": _NUMBER, "error": _ERROR, "partitions": partitions},
    )


def _folded() -> Schema:
    counts = {field.name: _INTEGER for field in fields(FoldReport)}
    ranges = _list(_list(_INTEGER) | {"minItems": 2, "maxItems": 2})
    return _object(
        {
            **dict.fromkeys(("stream", "log"), _STRING),
            **dict.fromkeys(("rows", "before"), _INTEGER),
            "consumers": _map(_object(counts | {"missing_ranges": ranges})),
            "malformed": _list(_object(_fields(Malformed))),
            **dict.fromkeys(("unknown_consumers", "other_streams"), _map(_INTEGER)),
        }
    )


def _finding() -> Schema:
    result = {"enum": ["ok", "warning", "problem"]}
    texts = dict.fromkeys(("check", "detail", "remedy"), _STRING)
    return _object(
        texts | dict.fromkeys(("stream", "table"), _or_null(_STRING)) | {"result": result}
    )
