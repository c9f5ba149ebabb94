"""One consumer's lines, folded by a task piece by piece, with one piece in memory at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.consumers.ack_fold import FoldInput, FoldReport, fold, fold_log
from retention.consumers.state import ConsumerState, new_state
from retention.interest.ack_tasks import KEYED, NUMBERS, ConsumerFold
from tests.support.consumer_model import LAST_SEQ, World, acks_of, lines_of, worlds


def keyed(world: World) -> pa.Table:
    acks = acks_of(world.log, "S", "c")
    columns = [acks["consumer"], acks["row"], *(acks[name] for name in NUMBERS)]
    return pa.table(columns, schema=KEYED)


def in_pieces(before: FoldInput, world: World) -> tuple[ConsumerState, FoldReport]:
    """The lines of each piece, in order of pieces."""
    report: FoldReport | None = None
    for begin, end in zip([0, *world.cuts], [*world.cuts, len(world.log)], strict=True):
        if begin < end:
            state, later = fold(before, lines_of(world.log[begin:end]), LAST_SEQ)
            report = later if report is None else report.then(before.state, later)
            before = FoldInput(before.ack_policy, state, before.matching)
    return before.state, report or FoldReport()


@given(worlds(forged=True), st.integers(1, 9))
def test_a_task_folds_as_pieces_are_folded(world: World, rows: int) -> None:
    before = FoldInput(world.consumer.policy, new_state(world.consumer.start))
    tables = [keyed(world).slice(at, rows) for at in range(0, len(world.log), rows)]
    folding = ConsumerFold("S", {"c": before}, [*world.cuts, len(world.log)], LAST_SEQ)
    assert folding("c", iter(tables)) == in_pieces(before, world)


def test_a_task_holds_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counting(consumers: Any, acks: pa.Table, **given: Any) -> Any:
        sizes.append(acks.num_rows)
        return fold_log(consumers, acks, **given)

    monkeypatch.setattr("retention.interest.ack_tasks.fold_log", counting)
    numbers = range(1, 1_001)
    columns = {
        "key": ["c"] * 1_000,
        "place": range(1_000),
        "verb": [1] * 1_000,
        "deliveries": [1] * 1_000,
    }
    lines = pa.table(columns | dict.fromkeys(NUMBERS[2:], numbers), schema=KEYED)
    folding = ConsumerFold(
        "S", {"c": FoldInput("explicit", new_state(1))}, [*range(90, 1_080, 90)], 1_000
    )
    state, report = folding(
        "c", (pa.Table.from_batches([one]) for one in lines.to_batches(max_chunksize=7))
    )
    assert (state.ack_floor.stream_seq, report.settling) == (1_000, 1_000)
    assert sizes == [90] * 11 + [10]
