from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.consumers import measure


@pytest.mark.thorough
@pytest.mark.live
@pytest.mark.slow
def test_server_and_engine_leave_what_is_not_acknowledged(tmp_path: Path) -> None:
    asked = Namespace(messages=24_000, runs=0, engines=["local"], server=True)
    table, _, served, *ours = measure(tmp_path, asked)
    assert table.startswith("| who |")
    assert served.startswith("| nats-server |")
    assert [line.split("|")[1].strip() for line in ours[:-1]] == [
        "ours, local",
        "of it, fold",
        "of it, release",
    ]
    assert "90% of 24,000 messages below every floor" in ours[-1]
