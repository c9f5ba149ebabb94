from __future__ import annotations

from typing import Any

from retention.ingest.sources.columns import contradictions, names_of, with_added, without


def columns(**kinds: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


def test_only_columns_that_are_new_are_added_and_types_stay() -> None:
    kept = columns(a="long", b="string")
    present = columns(B="double", c="date", _corrupt_record="string", k="string")
    now = with_added(kept, without(present, {"K": "string"}))
    assert names_of(now) == ["a", "b", "c"]
    assert [field["type"] for field in now["fields"]] == ["long", "string", "date"]


def test_a_column_that_is_gone_or_has_another_type_contradicts() -> None:
    kept = columns(a="long", b="string", c="date")
    assert contradictions(kept, columns(A="long", b="double", d="long")) == [
        "the column b was string and is double",
        "the column c is missing",
    ]


def test_fields_may_be_added_inside_of_columns() -> None:
    def inside(**kinds: Any) -> dict[str, Any]:
        return columns(s={"type": "array", "elementType": columns(**kinds), "containsNull": True})

    assert contradictions(inside(x="long"), inside(x="long", y="long")) == []
    assert contradictions(inside(x="long"), inside(x="string")) == [
        "the column s was array<struct<x:long>> and is array<struct<x:string>>"
    ]
