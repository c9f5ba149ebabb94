"""The demo's second part: the last location of each plane as an expiring state, and markers for expired ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention import open_warehouse
from retention.api.stream import Stream
from retention.core.units import parse_instant

FROM = "2013-12-31T05:00:00Z"
"""The last day of the year, by New York's midnight."""
CONFIG = """\
streams:
  - name: PLANES
    subjects: [plane.>]            # plane.<tail number>
    max_msgs_per_subject: 1
    subject_delete_marker_ttl: 1h  # implies allow_msg_ttl
"""
TTL = "6h"

Tell = Callable[[str, str], None]


def show(directory: Path, flights: pa.Table, as_of: str, tell: Tell) -> None:
    """Publish the last day's departures as states of planes, let time pass, and report the expired planes."""
    stream = _published(directory, _states(flights))
    state = stream.state(as_of)
    tell(
        "planes",
        f"{state.messages:,} departures of 2013-12-31 as states of planes, each with Nats-TTL {TTL}",
    )
    plan = stream.plan(as_of)
    marker = plan.plan.actions.markers.slice(0, 1).to_pylist()[0]
    tell("why", stream.explain(marker["replaces"], as_of).sentence)
    report = plan.apply()
    left = stream.state(as_of)
    tell(
        "expired",
        f"removed {report.removed_messages:,} states ({_rules(report.by_rule)}); {left.messages - report.markers:,} "
        f"planes were seen within {TTL}, and of {report.markers:,} a delete marker says that they were not",
    )
    headers = _headers(stream, marker["seq"])
    tell("marker", f"{marker['subject']}, sequence {marker['seq']:,}: {headers}")


def _states(flights: pa.Table) -> list[dict[str, object]]:
    """The last day's departures as messages: one subject per plane."""
    last_day = flights.filter(pc.greater_equal(flights["ts_ns"], parse_instant(FROM)))
    tails = pc.list_element(pc.split_pattern(last_day["subject"], "."), 3).to_pylist()
    rows = last_day.to_pylist()
    return [
        {
            "subject": f"plane.{tail}",
            "ts_ns": row["ts_ns"],
            "data": row["data"],
            "headers": {"Nats-TTL": TTL},
        }
        for tail, row in zip(tails, rows, strict=True)
    ]


def _published(directory: Path, states: list[dict[str, object]]) -> Stream:
    warehouse = directory / "planes"
    shutil.rmtree(warehouse, ignore_errors=True)
    warehouse.mkdir(parents=True)
    (warehouse / "retention.yaml").write_text(CONFIG)
    stream = open_warehouse(warehouse).stream("PLANES")
    stream.publish([json.dumps(state) for state in states])
    return stream


def _headers(stream: Stream, seq: int) -> str:
    rows = pa.concat_tables(stream.messages())
    block = rows.filter(pc.equal(rows["seq"], seq))["headers"][0].as_py()
    return ", ".join(block.decode().strip().split("\r\n")[1:])


def _rules(by_rule: Mapping[str, int]) -> str:
    return ", ".join(f"{rule} {count:,}" for rule, count in by_rule.items())
