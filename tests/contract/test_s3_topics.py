"""The creation record and the statistics of a topic on an S3-compatible object store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retention.api.warehouse import Warehouse, open_warehouse
from retention.stores.topic_settings import kept_settings
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = 1_800_000_000 * 10**9


def opened(folder: Path, bucket: str, server: dict[str, Any]) -> Warehouse:
    topic = {"name": NAME, "partitions": 2, "stream": "shop"}
    config = {"warehouse": bucket, "server_defaults": server, "topics": [topic]}
    place = folder / "retention.yaml"
    place.write_text(json.dumps(config))
    return open_warehouse(place, engine="local", clock=lambda: NOW)


def test_settings_are_kept_and_topics_counted_on_an_object_store(
    bucket: str, tmp_path: Path
) -> None:
    with_logs(tmp_path, "delta")
    import_logs(opened(tmp_path, bucket, {"message_expiry": "60s"}), tmp_path)
    later = opened(tmp_path, bucket, {"message_expiry": "never"})
    assert [one.messages for one in later.topic_stats().rows] == [40, 40, 40, 30, 10]
    plan = later.topic(NAME).plan()
    assert plan.plan.held_segments is not None
    assert plan.plan.held_segments.messages == 10
    assert plan.apply().by_rule == {"message_expiry": 15}
    root = later.topic(NAME).opened.root
    settings = kept_settings(root)
    assert settings is not None
    assert (settings.message_expiry, settings.defaulted[0]) == (60_000_000, "message_expiry")
    assert [one.messages for one in later.topic_stats([NAME]).rows] == [25, 25, 25, 20, 5]
