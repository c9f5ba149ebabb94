"""The published schemas: configuration, plan, report, tables.

`python -m retention.views.json_schemas DIR` writes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from retention.config.json_schema import json_schema
from retention.core.documents import PlanHeader
from retention.history.report import FORMAT_VERSION as REPORT_FORMAT
from retention.history.report import KIND as REPORT
from retention.history.report import RunReport
from retention.plan.plan import FORMAT_VERSION as PLAN_FORMAT
from retention.plan.planfile import KIND as PLAN
from retention.plan.planfile import saved_schemas
from retention.schemas.evidence import EVIDENCE
from retention.schemas.history_export import HISTORY_EXPORT
from retention.schemas.messages import MESSAGES
from retention.schemas.runs import RUN_RANGES

_DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_ERROR = {
    "type": "object",
    "properties": {"exit_code": {"type": "integer"}, "message": {"type": "string"}},
    "required": ["exit_code", "message"],
}
_FAILED = {
    "type": "object",
    "title": "A stream that failed: nothing was removed",
    "properties": {"stream": {"type": "string"}, "error": _ERROR},
    "required": ["stream", "error"],
}


def published() -> dict[str, str]:
    """Name of each file of `schemas/json/` → its text."""
    documents = {
        "plan.schema.json": _plan(),
        "report.schema.json": _report(),
        "tables.json": _tables(),
    }
    texts = {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in documents.items()
    }
    return {"retention.schema.json": json_schema()} | texts


def _plan() -> dict[str, Any]:
    """The schema of a saved plan's JSON document; its tables, one file each, are in `tables.json`."""
    header = PlanHeader.model_json_schema(ref_template="#/$defs/{model}")
    definitions = header.pop("$defs")
    digests = {"type": "object", "properties": dict.fromkeys(saved_schemas(), _DIGEST)}
    return _document(
        f"A saved plan, format {PLAN_FORMAT}",
        {
            "format_version": {"const": PLAN_FORMAT},
            "kind": {"const": PLAN},
            "sha256": digests | {"required": list(saved_schemas()), "additionalProperties": False},
            "plans": {"type": "array", "items": {"$ref": "#/$defs/PlanHeader"}, "minItems": 1},
        },
        ["format_version", "kind", "sha256", "plans"],
        definitions | {"PlanHeader": header},
    )


def _report() -> dict[str, Any]:
    """The schema of the report of a pass: `jobs.retain --report-file` and `apply --format json`."""
    stream = TypeAdapter(RunReport).json_schema(ref_template="#/$defs/{model}")
    del stream["properties"]["as_of_ns"]  # stands once, in the document
    stream["required"].remove("as_of_ns")
    stream["properties"]["earlier_try"] = {"type": "object"}
    stream["additionalProperties"] = False
    document = _document(
        f"The report of a pass, format {REPORT_FORMAT}",
        {
            "format_version": {"const": REPORT_FORMAT},
            "kind": {"const": REPORT},
            "as_of_ns": {"type": "integer"},
            "streams": {"type": "array", "items": {"anyOf": [stream, _FAILED]}},
            "compactions": {"type": "array", "items": {"type": "object"}},
            "error": _ERROR,
        },
        ["format_version"],
        {},
    )
    return document | {"anyOf": [{"required": ["as_of_ns", "streams"]}, {"required": ["error"]}]}


def _document(
    title: str, properties: dict[str, Any], required: list[str], definitions: dict[str, Any]
) -> dict[str, Any]:
    """The schema of a JSON document without other keys."""
    shape = {"title": title, "type": "object", "properties": properties, "required": required}
    return _DRAFT | shape | {"additionalProperties": False, "$defs": definitions}


def _tables() -> dict[str, Any]:
    """Name of each table that users read → its columns, with Arrow types."""
    saved = {f"plan.{part}": schema for part, schema in saved_schemas().items()}
    tables = {
        "messages": MESSAGES,
        **saved,
        "run.ranges": RUN_RANGES,
        "evidence": EVIDENCE,
        "history.export": HISTORY_EXPORT,
    }
    return {name: [_column(field) for field in schema] for name, schema in tables.items()}


def _column(field: pa.Field) -> dict[str, Any]:
    of_list = pa.types.is_list(field.type)
    kind = f"list<{field.type.value_type}>" if of_list else str(field.type)
    return {"name": field.name, "type": kind, "nullable": field.nullable}


def main(directory: str) -> None:
    """Write the files into a directory."""
    for name, text in published().items():
        Path(directory, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
