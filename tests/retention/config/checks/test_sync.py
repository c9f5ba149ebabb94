from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retention.config.server_json import server_config
from retention.errors import ConfigError
from tests.support.sandboxes import opened


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"mirror": {"name": "X"}}, "mirror: stream S: excludes sync"),
        ({"sources": [{"name": "X"}]}, "sources: stream S: excludes sync"),
        ({"subject_delete_marker_ttl": "1h"}, "subject_delete_marker_ttl: stream S: excludes sync"),
        ({"first_seq": 7}, "first_seq: stream S: excludes sync"),
        (
            {"subject_transform": {"src": "a", "dest": "b"}},
            "subject_transform: stream S: excludes sync",
        ),
        ({"sync": {"server": "nats://h", "context": "c"}}, "server and context exclude each other"),
        ({"sync": {"server": "nats://me:pw@h:4222"}}, "keeps no secrets"),
        ({"sync": {"server": "h:4222,nats://token@i"}}, "keeps no secrets"),
        ({"sync": {"stream": "a.b"}}, "'a.b' is not a stream's name"),
        ({"sync": {"max_missed": -1}}, "max_missed"),
    ],
)
def test_what_a_synced_stream_excludes_is_refused(
    tmp_path: Path, values: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        opened(tmp_path, {"name": "S", "sync": {"server": "nats://h"}, **values})
    assert wrong in str(refused.value)
    assert "me:pw" not in str(refused.value)


def test_a_synced_stream_takes_no_subject_unless_it_names_some(tmp_path: Path) -> None:
    other = {"name": "OTHER", "subjects": ["S"]}
    kept = {"name": "T", "subjects": ["t.>"], "sync": {"context": "prod"}}
    warehouse = opened(tmp_path, {"name": "S", "sync": {}}, other, kept)
    assert [stream.subjects for stream in warehouse.config.streams] == [(), ("S",), ("t.>",)]
    assert "sync" not in server_config(warehouse.config.streams[0])
