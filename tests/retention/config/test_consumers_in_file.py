"""Consumers in `retention.yaml`: locations in errors, and settings inherited from the stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention.config import Config, explain_stream, load_config
from retention.core.units import HOUR, SECOND
from retention.errors import ConfigError


def load(folder: Path, text: str) -> Config:
    path = folder / "retention.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(folder, text)
    prefix = f"{folder / 'retention.yaml'}:"
    return [line.removeprefix(prefix) for line in str(error.value).splitlines()]


CONSUMERS = """\
streams:
  - name: ORDERS
    subjects: [orders.>]
    retention: workqueue
    consumers:
      - durable_name: billing
        filter_subject: orders.paid
        ack_policy: expl
      - durable_name: audit
        ack_wiat: 30s
        filter_subject: orders.*
      - {name: audit, ack_policy: explicit, filter_subject: orders.y}
      - {filter_subject: orders.x, ack_policy: explicit, sample_freq: 5o%}
      - bare
"""


def test_every_mistake_of_every_consumer_is_told_where_it_stands(tmp_path: Path) -> None:
    expected = [
        "8: consumers.0.ack_policy: stream ORDERS: 'expl' is not one of none, all, explicit,"
        " flow_control; did you mean `explicit`?",
        "9: consumers.1.ack_policy: stream ORDERS: a work queue removes acknowledged messages; write"
        " explicit (server error 10084)",
        "10: consumers.1.ack_wiat: stream ORDERS: there is no such key; did you mean `ack_wait`?",
        "11: consumers.1.filter_subject: stream ORDERS: 'orders.*' overlaps with 'orders.paid' of"
        " consumer billing; change one (server error 10100)",
        "12: consumers.2.name: stream ORDERS: another consumer of the stream has this name; rename"
        " or remove one (server error 10148)",
        "13: consumers.3.durable_name: stream ORDERS: is missing; every consumer has one here",
        "13: consumers.3.filter_subject: stream ORDERS: 'orders.x' overlaps with 'orders.*' of"
        " consumer audit; change one (server error 10100)",
        "13: consumers.3.sample_freq: stream ORDERS: '5o%' is not a share: write a percentage, such as"
        " 50% (server error 10095)",
        "14: consumers.4: stream ORDERS: 'bare' is not a mapping; write {key: value}",
    ]
    assert mistakes(tmp_path, CONSUMERS) == expected


def test_a_consumer_is_not_judged_by_a_key_of_its_stream_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    text = "streams: [{name: A, subjects: a.>, consumers: [{name: c, filter_subject: a.x}]}]"
    (only,) = mistakes(tmp_path, text)
    assert "is not a list" in only


def test_consumers_take_what_their_stream_assumes(tmp_path: Path) -> None:
    limits = "consumer_limits: {max_ack_pending: 7, inactive_threshold: 1h}"
    text = f"streams: [{{name: A, {limits}, consumers: [{{name: c, ack_policy: explicit}}]}}]"
    (stream,) = load(tmp_path, text).streams
    (consumer,) = stream.consumers
    assert (consumer.max_ack_pending, consumer.inactive_threshold) == (7, HOUR)
    assert consumer.ack_wait == 30 * SECOND
    assert "These consumers are created or updated: c." in explain_stream(stream)
