from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import UsageError
from retention.formats.iggy import user_headers
from retention.inspect.topic_messages import headers_text, topic_lines, typed_headers
from tests.retention.formats.iggy.test_user_headers import KEY, ROUND_TRIPS, stored
from tests.support.iggy_logs import NAMES, ORIGINALS, Message, log_09, original, written
from tests.support.sandboxes import Commands

HEADERS = KEY + stored(2, b"web") + stored(11, b"\x01\0\0\0") + stored(9, b"\x03")
SAID = "key=web, 1 (uint32)=3 (uint8)"


def written_topic(folder: Path) -> Warehouse:
    """Offset 0 has typed headers, 1 has none, and 2 has invalid header bytes."""
    messages = [
        Message(0, b"<b>click</b>", HEADERS),
        Message(1, b"tap"),
        Message(2, b"", headers=b"\x63rubbish"),
    ]
    written(folder / "iggy", {"0": {0: log_09(messages)}})
    (folder / "retention.yaml").write_text("topics: [{name: clicks}]")
    warehouse = open_warehouse(folder / "retention.yaml", engine="local")
    warehouse.topic("clicks").import_iggy_log(folder / "iggy")
    return warehouse


@pytest.mark.parametrize(("kind", "name", "content", "value", "text"), ROUND_TRIPS)
def test_every_kind_is_shown_with_its_name(
    kind: int, name: str, content: bytes, value: object, text: str
) -> None:
    del value
    found = typed_headers(KEY + stored(kind, content))
    assert found == [{"key_kind": "string", "key": "key", "value_kind": name, "value": text}]
    assert json.loads(json.dumps(found)) == found


def test_what_cannot_be_printed_is_a_dot_and_what_is_none_is_said() -> None:
    assert headers_text(KEY + stored(2, b"a\nb\x1b[31m")) == "key=a·b·[31m"
    assert headers_text(HEADERS) == SAID
    assert (headers_text(None), headers_text(b"")) == ("", "")
    assert headers_text(b"\x63rubbish") == "8 B that are no user headers"
    assert (typed_headers(b"\x63rubbish"), typed_headers(None)) == (None, [])


def test_people_programs_and_notebooks_see_them(tmp_path: Path) -> None:
    topic = written_topic(tmp_path).topic("clicks")
    command = Commands(tmp_path)
    lines = command.run("messages", "clicks").stdout.splitlines()
    assert lines[0].endswith(f"B  <b>click</b>  {SAID}")
    assert lines[1].endswith("B  tap")
    assert lines[2].endswith("no user headers")
    rows = command.json("messages", "clicks")
    assert [row["user_headers"] for row in rows] == [typed_headers(HEADERS), [], None]
    assert rows[0]["headers_b64"]
    shown = topic.newest(2)
    assert len(shown) == 2
    assert repr(shown).splitlines() == lines[1:]
    page = topic.newest()._repr_html_()
    assert "1 (uint32)=3 (uint8)" in page
    assert "&lt;b&gt;click" in page
    frame = topic.newest().to_pandas()
    assert frame["user_headers"].tolist() == [typed_headers(HEADERS), [], None]
    assert frame["headers"][0] == HEADERS
    with pytest.raises(UsageError, match="there is no partition 1"):
        topic.newest(partition=1)


@pytest.mark.parametrize("name", NAMES)
def test_headers_of_real_servers_are_all_typed(name: str, tmp_path: Path) -> None:
    manifest = json.loads((ORIGINALS / name / "manifest.json").read_text())
    topic = {"name": "t", "partitions": len(manifest["before"]), "profile": manifest["profile"]}
    (tmp_path / "retention.yaml").write_text(json.dumps({"topics": [topic]}))
    opened = open_warehouse(tmp_path / "retention.yaml", engine="local").topic("t")
    opened.import_iggy_log(original(name, "before", tmp_path))
    rows = [json.loads(line) for table in opened.messages() for line in topic_lines(table)]
    blocks = [block for table in opened.messages() for block in table["headers"].to_pylist()]
    assert [len(row["user_headers"]) for row in rows] == [
        len(user_headers.parse(block or b"")) for block in blocks
    ]
    assert any(row["user_headers"] for row in rows)
