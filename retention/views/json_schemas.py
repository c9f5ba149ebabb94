"""The published schemas: configuration, plan, reports, tables.

`python -m retention.views.json_schemas DIR` writes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention.config.json_schema import json_schema
from retention.core.stored_documents import PlanHeader
from retention.plan.plan import FORMAT_VERSION
from retention.plan.planfile import KIND, saved_schemas
from retention.schemas.evidence import EVIDENCE
from retention.schemas.history_export import HISTORY_EXPORT, TABLE_HISTORY_EXPORT
from retention.schemas.messages import MESSAGES
from retention.schemas.runs import RUN_RANGES
from retention.views.report_schemas import document_schema, report_schemas

_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def published() -> dict[str, str]:
    """Name of each file of `schemas/json/` → its text."""
    documents = {
        "plan.schema.json": _plan(),
        **report_schemas(),
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
    parts = dict.fromkeys((*saved_schemas(), "tables"), _DIGEST)
    digests = {"type": "object", "properties": parts}
    return document_schema(
        f"A saved plan, format {FORMAT_VERSION}",
        {
            "format_version": {"const": FORMAT_VERSION},
            "kind": {"const": KIND},
            "sha256": digests | {"required": list(saved_schemas()), "additionalProperties": False},
            "plans": {"type": "array", "items": {"$ref": "#/$defs/PlanHeader"}, "minItems": 1},
        },
        ["format_version", "kind", "sha256", "plans"],
        definitions | {"PlanHeader": header},
    )


def _tables() -> dict[str, Any]:
    """Name of each table that users read → its columns, with Arrow types."""
    saved = {f"plan.{part}": schema for part, schema in saved_schemas().items()}
    tables = {
        "messages": MESSAGES,
        **saved,
        "run.ranges": RUN_RANGES,
        "evidence": EVIDENCE,
        "history.export": HISTORY_EXPORT,
        "history.export.table": TABLE_HISTORY_EXPORT,
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
