"""The chain of a history beside its table: a run that commits while both are read is no contradiction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.history.chain import StoredRun
from retention.history.runs import History
from retention.inspect.chain import chain_of
from tests.support.sandboxes import ORDERS, commands, lines


def test_a_run_that_commits_meanwhile_is_no_contradiction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = commands(tmp_path, {**ORDERS, "max_msgs": 20})
    command.json("publish", "ORDERS", stdin="\n".join(lines(30)))
    command.json("apply", "--yes")
    stored = History.stored
    acted: list[int] = []

    def meanwhile(history: History) -> Iterator[StoredRun]:
        if not acted:
            acted.append(1)
            command.json("delete", "ORDERS", "25", "--yes")
        return stored(history)

    monkeypatch.setattr(History, "stored", meanwhile)
    chain = chain_of(open_warehouse(tmp_path / "retention.yaml").stream("ORDERS").opened)
    assert (acted, chain.findings, chain.chained) == ([1], (), 2)
