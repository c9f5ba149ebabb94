"""The page on consumers and the tables of misconfigured ones, checked against refusals and defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from retention.config import load_config
from retention.config.consumer import ConsumerConfig
from retention.core.units import MINUTE
from tests.support.misconfigured import Row, ours, refusal_of, rows, subscriptions

ROWS = list(rows())
SUBSCRIBED = list(subscriptions())
PAGE = Path(__file__).parents[2] / "docs" / "semantics" / "consumers.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_whole() -> None:
    assert f"lists {len(ROWS)} requests" in TEXT
    assert len(SUBSCRIBED) == 16
    assert sum(row.beside is not None for row in ROWS) == 7
    assert sum(row.there is not None for row in ROWS) == 14


def test_the_example_is_a_file_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text(re.findall(r"```yaml\n(.*?)```", TEXT, re.S)[0])
    billing, audit = load_config(path).streams[0].consumers
    assert (billing.name, billing.filters) == ("billing", ("orders.paid",))
    assert (audit.max_ack_pending, audit.ack_wait) == (500, 2 * MINUTE)


@pytest.mark.parametrize("row", ROWS, ids=[json.dumps(row.asked)[:80] for row in ROWS])
def test_a_consumer_is_refused_as_its_row_says(row: Row) -> None:
    assert ours(row) == (row.server, row.why)


def test_every_key_of_a_consumer_is_on_the_page() -> None:
    listed = re.findall(r"^\| (`[^|]*`) \|", TEXT.split("### What is refused")[0], re.M)
    assert {key for cell in listed for key in re.findall(r"`(\w+)`", cell)} == set(
        ConsumerConfig.model_fields
    )


@pytest.mark.parametrize("row", SUBSCRIBED, ids=[json.dumps(row.asked)[:80] for row in SUBSCRIBED])
def test_a_subscription_is_refused_as_its_row_says(row: Row) -> None:
    assert refusal_of(row) == row.why
