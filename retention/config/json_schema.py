"""The JSON Schema of `retention.yaml`: `python -m retention.config.json_schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from retention.config.load import ConfigFile

# Unlike `anyOf`, this lets an editor point at the wrong key.
_STREAM = {
    "if": {"required": ["config"]},
    "then": {"$ref": "#/$defs/StreamInfo"},
    "else": {"$ref": "#/$defs/StreamConfig"},
}


def json_schema() -> str:
    """The schema as the text of `schemas/json/retention.schema.json`."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= ConfigFile.model_json_schema()
    schema["properties"]["streams"]["items"] = _STREAM
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(json_schema())
