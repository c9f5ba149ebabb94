"""The page on acks: its table of bodies and its logs, line by line."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from retention.consumers import ack_gaps
from retention.consumers.ack_fold import FoldInput, fold
from retention.consumers.ack_subject import ACK, DELIVERED, SETTLING, VERBS, verbs
from retention.consumers.state import new_state
from retention.formats.ack.log import TAIL_LINES, parse_slice
from retention.formats.ack.sources import open_log
from retention.interest.ack_fold import PIECE_ROWS
from retention.views.ack_fold import MOST_RANGES
from tests.support.consumer_model import Line, lines_of

PAGE = (Path(__file__).parents[2] / "docs" / "semantics" / "consumer-acks.md").read_text()


def tables(heading: str) -> list[list[dict[str, str]]]:
    """The tables of the page with this header line."""
    parts = PAGE.split(f"{heading}\n")[1:]
    names = cells(heading)
    return [
        [
            dict(zip(names, cells(line), strict=True))
            for line in part.split("\n\n")[0].splitlines()[1:]
        ]
        for part in parts
    ]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def code_of(body: str) -> int:
    said = None if body == "delivered" else body.strip("`").encode()
    return int(verbs(pa.array([said], pa.binary()))[0].as_py())


def test_the_bodies_mean_what_the_page_says() -> None:
    [rows] = tables("| body | is | does |")
    assert len(rows) == 11
    for row in rows:
        code = code_of(row["body"])
        assert VERBS[code] == row["is"]
        assert row["does"] == ("settles" if code in SETTLING else "waits")
    assert code_of("delivered") == DELIVERED


LOGS = tables("| body | deliveries | seq | consumer seq | waits | floor |")


@pytest.mark.parametrize(("log", "start"), [*zip(LOGS, (1, 3), strict=True)], ids=["full", "acks"])
def test_the_logs_of_the_page_fold_line_by_line(log: list[dict[str, str]], start: int) -> None:
    state = new_state(start)
    for row in log:
        numbers = (int(row[name]) for name in ("deliveries", "seq", "consumer seq"))
        said = lines_of((Line(code_of(row["body"]), *numbers),))
        state, _ = fold(FoldInput("explicit", state), said, 100)
        waits = " ".join(str(seq) for seq in state.pending["seq"].to_pylist())
        floor = f"{state.ack_floor.consumer_seq}, {state.ack_floor.stream_seq}"
        assert (waits, floor) == (row["waits"], row["floor"]), row


def test_the_file_of_the_page_is_a_log(tmp_path: Path) -> None:
    [lines] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "acks.jsonl").write_text(lines)
    [whole] = open_log(str(tmp_path / "acks.jsonl")).between(0, 2)
    parsed = parse_slice(whole)
    assert parsed.acks["verb"].to_pylist() == [DELIVERED, ACK]
    assert parsed.malformed == ()


def test_the_page_says_how_much_is_held_at_most() -> None:
    assert f"more than {ack_gaps.MOST_KEPT:,} messages" in PAGE


def test_the_page_says_how_much_is_read_checked_and_listed() -> None:
    assert f"in pieces of {PIECE_ROWS:,} lines" in PAGE
    assert f"a digest of the last {TAIL_LINES:,} of them" in PAGE
    assert f"the first {MOST_RANGES:,} runs of them" in PAGE
