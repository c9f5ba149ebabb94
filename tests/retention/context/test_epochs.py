from __future__ import annotations

from pathlib import Path

from retention.api.topic import Topic
from retention.api.warehouse import open_warehouse
from retention.stores.delta.log import newest_version_token
from retention.stores.delta.log_diff import changes
from retention.stores.layout import Layout
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = 1_800_000_000 * 10**9


def test_who_follows_a_delta_log_opens_the_table_behind_a_purge(tmp_path: Path) -> None:
    with_logs(tmp_path, "delta")
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: NOW)
    import_logs(warehouse, tmp_path)
    topic: Topic = warehouse.topic(NAME)
    layout = Layout(topic.opened.root, NAME, 2)
    before = newest_version_token(layout)
    topic.purge().apply()
    purged = newest_version_token(layout)
    import_logs(warehouse, tmp_path)
    after = newest_version_token(layout)
    assert before is not None
    assert purged is not None
    assert after is not None
    assert changes(layout, before, purged) is None
    found = changes(layout, purged, after)
    assert found is not None
    assert found.counters["next_seq"] == {0: 30, 1: 10}
    assert found.counters["open_base"] == {0: 20, 1: 5}
