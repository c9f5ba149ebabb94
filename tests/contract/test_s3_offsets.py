"""Stored offsets of a topic on an object store: rivals lose no updates, and passes respect them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retention.api.topic import Topic
from retention.api.warehouse import Warehouse, open_warehouse
from retention.engines.select import Engines
from retention.errors import StalePlanError
from retention.planners.cached import plan_pass
from retention.stores.offset_table import OffsetTable
from tests.support.sandboxes import Commands
from tests.support.shares import THOROUGH
from tests.support.topic_crashes import NAME, with_logs

NOW = 1_800_000_000 * 10**9
EACH = 4 if THOROUGH else 2
_STORING = """
import sys
from pathlib import Path
from retention.api.warehouse import open_warehouse
topic = open_warehouse(Path(sys.argv[1]), engine="local").topic("clicks")
for number in range(int(sys.argv[3])):
    topic.store_offset(0, "group", int(sys.argv[2]) + number, 20 + number)
    topic.store_offset(0, "consumer", "both", 20 + number)
"""


@pytest.fixture
def warehouse(bucket: str, tmp_path: Path) -> Warehouse:
    """The warehouse of `with_logs`, but in the bucket."""
    with_logs(tmp_path, "delta")
    config = tmp_path / "retention.yaml"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"warehouse": bucket}))
    opened = open_warehouse(config, engine="local", clock=lambda: NOW)
    opened.topic(NAME).import_iggy_log(tmp_path / "iggy")
    return opened


@pytest.fixture
def topic(warehouse: Warehouse) -> Topic:
    return warehouse.topic(NAME)


def stored(topic: Topic) -> dict[tuple[int, str, str], int]:
    return {(one.partition, one.kind, one.name): one.offset for one in topic.offsets()}


def test_imported_offsets_hold_until_they_move(warehouse: Warehouse, topic: Topic) -> None:
    assert stored(topic) == {(0, "consumer", "7"): 12}
    [outcome] = warehouse.apply([NAME], NOW)
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.segments["dropped"] == 2
    topic.store_offset(0, "consumer", 7, 29)
    [outcome] = warehouse.apply([NAME], NOW)
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.segments["dropped"] == 1
    topic.delete_offset(0, "consumer", 7)
    assert stored(topic) == {}


@pytest.mark.thorough
def test_two_processes_that_store_at_once_lose_nothing(tmp_path: Path, topic: Topic) -> None:
    before = OffsetTable(topic.opened.root).read()
    command = [sys.executable, "-c", _STORING, str(tmp_path / "retention.yaml")]
    storing = [
        subprocess.Popen([*command, str(first), str(EACH)], stderr=subprocess.PIPE, text=True)
        for first in (100, 200)
    ]
    assert [(process.communicate(timeout=300)[1], process.returncode) for process in storing] == [
        ("", 0),
        ("", 0),
    ]
    found = stored(topic)
    groups = {
        (0, "group", str(first + number)): 20 + number
        for first in (100, 200)
        for number in range(EACH)
    }
    assert groups.items() <= found.items()
    assert len(found) == len(groups) + 2
    after = OffsetTable(topic.opened.root).read()
    # Every group is new, and the shared consumer is new once; a race decides whether it ever goes back.
    assert after.revision - before.revision >= 2 * EACH + 1
    assert after.counted
    assert topic.opened.store.snapshot().counters.consumers >= 2 * EACH + 1


def test_a_pass_that_counted_on_an_offset_that_went_back_is_refused(
    warehouse: Warehouse, topic: Topic
) -> None:
    saved = topic.plan()
    topic.store_offset(0, "group", 1, 0)
    [outcome] = warehouse.apply_plans([saved.plan])
    assert isinstance(outcome.error, StalePlanError)
    with Engines("local") as engines:
        again = plan_pass(topic.opened, NOW, engines).plan
    assert again.actions.drop.files["partition"].to_pylist() == [1]


def test_the_commands_work_there(tmp_path: Path, topic: Topic) -> None:
    command = Commands(tmp_path)
    done = command.json("offset", "store", NAME, 1, 5, 3, "--kind", "group")
    assert (done["offset"], done["lag"]) == (3, 6)
    assert command.json("offset", "get", NAME, 1, 5, "--kind", "group") == done
    listed = command.json("offset", "ls", NAME)
    assert [(one["kind"], one["name"], one["offset"]) for one in listed] == [
        ("consumer", "7", 12),
        ("group", "5", 3),
    ]
    assert command.json("offset", "delete", NAME, 1, 5, "--kind", "group")["deleted"]
    assert stored(topic) == {(0, "consumer", "7"): 12}
