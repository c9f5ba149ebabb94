from __future__ import annotations

from typing import Any

import pytest

from retention.ingest.sources.damage import first_bad_line

KINDS = {"n": "long", "x": "double", "b": "boolean", "s": {"type": "struct"}, "t": "string"}
COLUMNS: dict[str, Any] = {"fields": [{"name": name, "type": kind} for name, kind in KINDS.items()]}


@pytest.mark.parametrize(
    ("lines", "number", "why"),
    [
        ([b'{"n": 1}', b'{"n": 2'], 2, "not a complete JSON value"),
        ([b"", b"[1]"], 2, "not a JSON object: [1]"),
        ([b'{"n": 1.5}'], 1, "its n is not of type bigint: 1.5"),
        ([b'{"n": true}'], 1, "its n is not of type bigint: true"),
        ([b'{"x": "1"}'], 1, 'its x is not of type double: "1"'),
        ([b'{"b": 0}'], 1, "its b is not of type boolean: 0"),
        ([b'{"s": [1]}'], 1, "its s is not of type struct: [1]"),
    ],
)
def test_the_first_line_that_is_no_row_is_named(lines: list[bytes], number: int, why: str) -> None:
    fault = first_bad_line("json", lines, COLUMNS)
    assert fault is not None
    assert fault[0] == number
    assert fault[1].startswith(why)


def test_rows_are_no_fault() -> None:
    good = b'\xef\xbb\xbf{"n": 1, "x": 2, "b": null, "s": {}, "t": 7, "u": []}\r'
    assert first_bad_line("json", [good, b" "], COLUMNS) is None
    assert first_bad_line("csv", [b'1,"a,b"', b"2,c"], {"fields": [1, 2]}) is None
    assert first_bad_line("csv", [b"1", b"2"], {"fields": [1, 2]}, 1) is None


def test_a_csv_line_of_another_width_is_named() -> None:
    fault = first_bad_line("csv", [b"1,2", b"3"], {"fields": [1, 2]})
    assert fault == (2, "it has 1 column, and 2 were expected: 3")
