"""The page of configuration keys, from the models that read the file and the sentences about their keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from retention.config.load import ConfigFile
from retention.config.sentences import SENTENCES
from retention.core.iggy_units import UNLIMITED
from retention.core.units import INT64_MAX, format_duration, format_size
from scripts.reference.markdown import HEAD, code, prose, table

_INTRODUCTION = (
    "# Configuration keys\n\n"
    "[Configuration](../configuration.md) says how values are written, whose a stream is, and what guards "
    "and policies of tables do. An unknown key is a mistake; `retention effective NAME` shows the value "
    "of each key and its origin.\n\n"
)
_SECTIONS = (
    ("The file", "ConfigFile"),
    ("A stream", "StreamConfig"),
    ("A topic", "TopicConfig"),
    ("A table in place", "TableConfig"),
    ("A policy of a table", "RowPolicyConfig"),
    ("A bucket", "BucketConfig"),
    ("guards", "GuardSettings"),
    ("compact", "Compaction"),
    ("approve", "Approval"),
    ("hold_for_consumers", "ConsumerHold"),
    ("holds of a stream", "StreamHold"),
    ("holds of a topic", "TopicHold"),
    ("holds of a table", "RowHold"),
    ("mirror and sources", "StreamSource"),
    ("server_defaults", "ServerDefaults"),
)
_MORE = {
    "expiry": "semantics/limits.md",
    "max_subjects": "semantics/limits.md",
    "delete_retention": "semantics/log-compaction.md",
    "subject_delete_marker_ttl": "semantics/ttl.md",
    "allow_msg_ttl": "semantics/ttl.md",
    "retention": "semantics/consumers-release.md",
    "hold_for_consumers": "semantics/consumers-hold.md",
    "consumers": "semantics/consumers.md",
    "mirror": "semantics/mirrors.md",
    "sources": "semantics/mirrors.md",
    "duplicate_window": "semantics/publish-and-import.md",
    "layout": "semantics/storage.md",
    "vectors": "semantics/storage.md",
    "spark_writes": "semantics/storage.md",
    "archive": "semantics/archives.md",
    "compact": "semantics/compaction.md",
    "guards": "configuration.md#guards",
    "approve": "airflow.md",
    "holds": "commands.md#hold-add-hold-ls-hold-release",
    "group": "many-streams.md",
    "tags": "many-streams.md",
    "policies": "configuration.md#policies-of-a-table",
    "server_defaults": "semantics/topics.md",
    "topics": "semantics/topics.md",
    "tables": "semantics/tables.md",
    "buckets": "buckets.md",
    "evidence": "semantics/tables.md",
}
"""Key → the page that defines it."""
_TYPES = {"array": "list", "object": "mapping", "boolean": "boolean", "integer": "integer"}


def configuration_page() -> str:
    """Every key: its type, its default, and its effect."""
    schema = ConfigFile.model_json_schema()
    models = schema["$defs"] | {"ConfigFile": schema}
    parts = [f"{HEAD}{_INTRODUCTION}"]
    for title, model in _SECTIONS:
        rows = _rows(models[model], SENTENCES[model], model)
        parts.append(f"## {title}\n\n{table(('key', 'type', 'default', ''), rows)}\n")
    return "".join(parts).rstrip("\n") + "\n"


def _rows(
    model: dict[str, Any], sentences: Mapping[str, str], name: str
) -> Iterator[tuple[str, str, str, str]]:
    required = set(model.get("required", ()))
    for key in sentences if name == "ConfigFile" else _ordered(model, sentences, required):
        value = model["properties"][key]
        default = "required" if key in required else code(_default(value))
        more = (
            f" [More](../{_MORE[key]})"
            if key in _MORE and name.endswith(("Config", "File"))
            else ""
        )
        yield code(key), _type(value), default, f"{prose(sentences[key])}{more}"


def _ordered(model: dict[str, Any], sentences: Mapping[str, str], required: set[str]) -> list[str]:
    """The keys: required ones first, those without effect last."""
    return sorted(
        model["properties"],
        key=lambda key: (
            key not in required,
            sentences[key].endswith("no effect on retention."),
            key,
        ),
    )


def _type(value: dict[str, Any]) -> str:
    """The type of a key in words."""
    match value:
        case {"description": str(form)}:
            words = form.split(":")[0].split(", or an integer")[0].removeprefix("a ")
        case {"$ref": str(reference)}:
            words = _named(reference)
        case {"enum": [*listed]}:
            words = ", ".join(dict.fromkeys(code(str(each).lower()) for each in listed))
        case {"anyOf": [*choices]}:
            types = [_type(each) for each in choices if each.get("type") != "null"]
            words = " or ".join(dict.fromkeys(types))
        case {"type": "array", "items": dict(items)}:
            words = f"list of {_plural(_type(items))}"
        case _:
            kind = "integer" if "const" in value else value.get("type", "")
            words = _TYPES.get(kind, "text")
    return words


def _named(reference: str) -> str:
    titles = {model: title for title, model in _SECTIONS}
    model = reference.rsplit("/", 1)[1]
    title = titles.get(model)
    if title is None:
        return "mapping"
    return f"[mapping](#{title.lower().replace(' ', '-')})"


def _plural(text: str) -> str:
    return {"text": "texts", "mapping": "mappings"}.get(
        text, text.replace("[mapping]", "[mappings]")
    )


def _default(value: dict[str, Any]) -> str:
    """The default as a configuration would write it; empty if the key is absent by default."""
    default, form = value.get("default"), value.get("description", "")
    if default in (None, "", {}, ()) or isinstance(default, dict):
        return "off" if "or off" in form else ""
    if isinstance(default, bool) or not isinstance(default, int):
        return default if isinstance(default, str) else json.dumps(default)
    return "forever" if default == INT64_MAX else _number(default, form)


def _number(default: int, form: str) -> str:
    """A default that is a number, in the form of its key."""
    if "server_default" in form:
        return form.split(",", maxsplit=1)[0] if default == UNLIMITED else "server_default"
    if "duration" in form:
        nothing = "off" if "or off" in form else "0"
        return format_duration(default) if default else nothing
    if "size" in form and default > 0:
        return format_size(default).replace(" ", "")
    return f"{default}%" if "share" in form else str(default)
