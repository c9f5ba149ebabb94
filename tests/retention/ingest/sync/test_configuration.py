from __future__ import annotations

import json
from pathlib import Path

from retention.ingest.sync.configuration import difference_notes, keep_configuration
from tests.support.sandboxes import opened

SERVER = {
    "name": "S",
    "subjects": ["s.>"],
    "retention": "limits",
    "max_age": 86_400_000_000_000,
    "max_msgs": -1,
    "max_bytes": -1,
    "storage": "file",
    "num_replicas": 3,
}


def test_settings_that_remove_and_differ_are_said(tmp_path: Path) -> None:
    ours = {"name": "S", "sync": {}, "max_age": "30d", "max_msgs_per_subject": 5}
    config = opened(tmp_path, ours).config.streams[0]
    (note,) = difference_notes(config, SERVER)
    assert note == (
        "the configurations differ: max_age is 2592000000000000 here and 86400000000000 on the server; "
        "max_msgs_per_subject is 5 here and -1 on the server"
    )
    same = {"name": "S", "sync": {}, "max_age": "1d"}
    assert difference_notes(opened(tmp_path, same).config.streams[0], SERVER) == []


def test_a_field_of_a_newer_server_is_a_note_and_no_error(tmp_path: Path) -> None:
    config = opened(tmp_path, {"name": "S", "sync": {}}).config.streams[0]
    (note,) = difference_notes(config, SERVER | {"teleport": True})
    assert "cannot be compared" in note
    assert "teleport" in note


def test_the_servers_configuration_is_beside_the_stream(tmp_path: Path) -> None:
    stream = opened(tmp_path, {"name": "S", "sync": {}}).new_stream("S").opened
    keep_configuration(stream, SERVER)
    place = Path(stream.root, "_retention", "server-config.json")
    assert json.loads(place.read_text(encoding="utf-8")) == SERVER
    before = place.stat().st_mtime_ns
    keep_configuration(stream, SERVER)
    assert place.stat().st_mtime_ns == before
