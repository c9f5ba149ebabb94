"""Long configurations are parsed by libyaml, with the values and lines that the parser in Python gives."""

from __future__ import annotations

import json
import random

import pytest

from retention.config import document as documents
from retention.config import quick_nodes
from retention.config.document import read_document
from retention.errors import ConfigError

NAMES = [f"S{number:04}" for number in range(20)]
LISTED = [{"name": name, "subjects": [f"{name}.>"], "max_age": "30d"} for name in NAMES]
BLOCK = "# all\nwarehouse: .\nstreams:\n" + "".join(
    f"- name: {name}  # of {name}\n  subjects: ['{name}.*', {name}.>]\n  sealed: no\n  max_age: \"30d\"\n  max_msgs:\n"
    for name in NAMES
)
TEXTS = {"JSON": json.dumps({"streams": LISTED}), "lines": BLOCK}
PIECES = (
    *("a", "b: ", "key:", "- ", "  ", "\n", "\n", "\n  ", "\n- ", "[", "]", "{", "}", ", ", ": "),
    *("'", '"', "#", " #c", "1", "0o7", "yes", "null", "~", "1:30", "2020-01-01", ">", "*", "*a"),
    *("s3://x/y", "1_000", "-", "--- ", "...", ".5", "0x1F", "1e3", "''", '"a":1', "{a: 1}", "a#b"),
    *("&a ", "!t ", "| ", "<<: ", "? ", "%", "\\", "\t", "é"),
)
"""Pieces of YAML, of which random texts are made."""


def read(text: str, least: int, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...] | str:
    monkeypatch.setattr(quick_nodes, "LONG", least)
    documents._root.cache_clear()
    try:
        document = read_document("retention.yaml", text.encode())
    except ConfigError as error:
        return str(error)
    return repr(document.values), document.lines, document.mistakes


def is_quick(text: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    from retention.config.document import _DEEPEST, _Yaml

    monkeypatch.setattr(quick_nodes, "LONG", 0)
    resolver = _Yaml(typ="safe", pure=True).resolver
    return quick_nodes.quick_nodes(text, resolver, _DEEPEST) is not None


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_long_text_is_parsed_by_libyaml_with_the_same_values_and_lines(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_quick(text, monkeypatch)
    assert read(text, 0, monkeypatch) == read(text, len(text) + 1, monkeypatch)


@pytest.mark.parametrize(
    "end",
    [
        "x: &a 1\ny: *a\n",
        "x: !!str 1\n",
        "x: |\n  1\n",
        "x: >\n  1\n",
        "x: one\n  two\n",
        "x: {a:b}\n",
        "x: 'é'\n",
        "---\nx: 1\n",
        "x: [\n",
        f"x: {'[a, ' * 80}1{']' * 80}\n",
    ],
)
def test_text_with_anything_unusual_is_left_to_the_parser_in_python(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = BLOCK + end
    assert not is_quick(text, monkeypatch)
    assert read(text, 0, monkeypatch) == read(text, len(text) + 1, monkeypatch)


@pytest.mark.parametrize("seed", range(5))
def test_both_parsers_agree_on_random_texts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(seed)
    for _ in range(40):
        text = "".join(chosen.choices(PIECES, k=chosen.randint(1, 22)))
        assert read(text, 0, monkeypatch) == read(text, len(text) + 1, monkeypatch), text


def test_a_text_that_is_read_again_has_values_of_its_own() -> None:
    first, again = (read_document("retention.yaml", BLOCK.encode()) for _ in range(2))
    assert first.values == again.values
    first.values["streams"][0]["name"] = "another"
    first.lines.clear()
    assert again.values["streams"][0]["name"] == NAMES[0]
    assert again.line(("streams", 0, "name"))
    assert read_document("retention.yaml", b"warehouse: x").values == {"warehouse": "x"}
