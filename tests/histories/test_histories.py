"""A law: after any acts, a stream has the content of a model in plain Python, and reports it correctly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.histories.play import History, play, play_all

ACTS = int(os.environ.get("RETENTION_HISTORIES", "150"))
"""Acts to play; `make long NAME=histories` plays 100,000."""
FIRST = int(os.environ.get("RETENTION_HISTORIES_FROM", "1"))
"""The first seed."""
ONE = os.environ.get("RETENTION_HISTORY")
"""A single history, as printed by a failure: a seed, or a seed and the numbers of acts."""


@pytest.mark.always
def test_a_stream_is_what_the_model_says(tmp_path: Path) -> None:
    if ONE:
        failure = play(History.parsed(ONE), tmp_path / "history")
        assert failure is None, failure.report()
        return
    played, failures = play_all(FIRST, ACTS, tmp_path)
    assert not failures, "\n\n".join(failure.report() for failure in failures)
    assert played >= ACTS
