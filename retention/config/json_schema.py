"""The JSON Schema of `retention.yaml`: `python -m retention.config.json_schema` prints it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from retention.config.groups import MODELS, OF_ONE
from retention.config.load import ConfigFile
from retention.config.sentences import SENTENCES

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
    for name, sentences in SENTENCES.items():
        model = schema if name == ConfigFile.__name__ else schema["$defs"][name]
        _describe(model["properties"], sentences)
    schema["properties"]["streams"]["items"] = _STREAM
    schema["properties"]["groups"]["additionalProperties"] = _group(schema["$defs"])
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _describe(properties: dict[str, Any], sentences: Mapping[str, str]) -> None:
    """Give each key its sentence, and after it the form of its value if the type has one."""
    for key, value in properties.items():
        form = value.get("description")
        value["description"] = f"{sentences[key]} Written as {form}." if form else sentences[key]


def _group(definitions: dict[str, Any]) -> dict[str, object]:
    """The schema of a group: all keys of a stream, a topic and a table except those of one; none is required."""
    places: dict[str, list[dict[str, str]]] = {}
    for model in MODELS:
        for key in definitions[model.__name__]["properties"].keys() - OF_ONE:
            places.setdefault(key, []).append(
                {"$ref": f"#/$defs/{model.__name__}/properties/{key}"}
            )
    keys = {key: refs[0] if len(refs) == 1 else {"anyOf": refs} for key, refs in places.items()}
    return {"type": "object", "properties": keys, "additionalProperties": False}


if __name__ == "__main__":
    sys.stdout.write(json_schema())
