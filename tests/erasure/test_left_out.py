"""An erasure that leaves out one of its steps is found out, by its own search and by a stranger's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.apply import erasure_run
from retention.erasure.needles import needles_of_rows
from retention.erasure.search import search
from retention.stores.consumer_table import ConsumerTable
from tests.erasure.test_erase import EVE, STORE, lived_in
from tests.support.strangers_search import hiding_places

STEPS: dict[str, tuple[Any, str]] = {
    "removed files": (erasure_run, "dead_copies"),
    "digests of removed files": (erasure_run, "orphaned_digests"),
    "arguments of runs": (erasure_run, "erase_arguments"),
    "ended holds": (erasure_run, "conceal_holds"),
    "consumers": (ConsumerTable, "forget"),
}


@STORE
@pytest.mark.parametrize("step", STEPS)
def test_a_step_left_out_leaves_what_two_searches_find(
    store: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lived_in(tmp_path, store)
    monkeypatch.setattr(*STEPS[step], lambda *_, **__: [])
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert not report.is_done
    traced = {Path(trace.location).relative_to(tmp_path).as_posix() for trace in report.traces}
    assert traced >= {path for path, _ in hiding_places(str(tmp_path), [EVE.encode()])} > set()
    monkeypatch.undo()
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert world.left() == []


@STORE
def test_both_searches_find_the_same_files_and_every_file_can_be_decoded(
    store: str, tmp_path: Path
) -> None:
    """The files of a stream that lived: data, logs, records, ids, evidence, holds."""
    lived_in(tmp_path, store)
    result = search([str(tmp_path)], needles_of_rows([pa.table({"subject": [EVE]})]))
    assert result.undecodable == ()
    found = {Path(each.location).relative_to(tmp_path).as_posix() for each in result.findings}
    assert found == {path for path, _ in hiding_places(str(tmp_path), [EVE.encode()])}
    assert len(found) > 10
