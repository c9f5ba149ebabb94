"""The worked examples of the page on replays: each message has the fate that the page tells."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ruamel.yaml import YAML

from retention.config.stream import StreamConfig
from retention.core import headers
from retention.core.message_rows import complete_rows
from retention.core.units import SECOND, parse_duration
from retention.replay.limits import replay_limits
from retention.replay.publishes import publishes_of
from retention.rules.replay.replay import replay
from tests.docs.test_semantics import EXAMPLE, rows

PAGE = Path(__file__).parents[2] / "docs" / "semantics" / "replay.md"
START = 10**18
END = START + 30 * SECOND


def examples() -> list[tuple[str, list[dict[str, str]]]]:
    found = EXAMPLE.finditer(PAGE.read_text(encoding="utf-8"))
    return [(match["policy"], rows(match["table"])) for match in found]


def published(row: dict[str, str]) -> dict[str, Any]:
    block = headers.build([("Nats-Msg-Id", row["id"])]) if row.get("id") else None
    ts_ns = START + parse_duration(row["at"])
    return {"seq": int(row["seq"]), "subject": row["subject"], "ts_ns": ts_ns, "headers": block}


def told(fate: dict[str, Any]) -> str:
    """The fate of a message in the words of the page."""
    if fate["fate"] == "removed":
        seconds = (fate["removed_ns"] - START) // SECOND
        return f"removed: {fate['reason']} at {seconds}s"
    return f"refused: {fate['reason']}" if fate["fate"] == "refused" else str(fate["fate"])


@pytest.mark.parametrize(("policy", "table"), examples())
def test_the_worked_examples_come_out_as_the_page_says(
    policy: str, table: list[dict[str, str]]
) -> None:
    config = StreamConfig(name="S", subjects=("*",), **YAML(typ="safe").load(policy))
    raw = pa.Table.from_pylist([published(row) for row in table if row["seq"]])
    nothing = pa.array([b"x"] * raw.num_rows, pa.binary())
    blocks = raw["headers"].cast(pa.binary())
    raw = raw.set_column(raw.schema.get_field_index("headers"), "headers", blocks)
    stored = complete_rows(raw.append_column("payload", nothing), config.storage)
    fates = replay(
        publishes_of(stored, config.storage, config), replay_limits(config), END - 10 * SECOND
    ).to_pylist()
    assert [
        [str(fate["seq"] or ""), told(fate), str(fate["server_seq"] or "")] for fate in fates
    ] == [[row["seq"], row["what happens"], row["on the server"]] for row in table]


def test_there_are_examples() -> None:
    assert len(examples()) == 3
    assert len(re.findall(r"^## ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == 4
