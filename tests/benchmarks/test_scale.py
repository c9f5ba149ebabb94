from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.scale.ack_log import CONSUMERS, AckLogs
from benchmarks.scale.foreign_files import MESSAGES_EACH, ForeignFiles
from benchmarks.scale.logged_files import LoggedFiles
from benchmarks.scale.step import Work, WrongError
from benchmarks.scale.subjects import MESSAGES, Subjects
from retention.consumers.ack_subject import parse
from retention.planners import subject_ranges

FEW_SUBJECTS = Subjects(subjects=2_000, spans=40, each=2)
STEPS = ["max_msgs_per_subject", "num_subjects of state"]
FEW_FILES = ForeignFiles(files=200)


def carry_out(work: Work, place: Path) -> list[str]:
    """Prepare some work and run all of its steps in this process."""
    work.make(place)
    steps = work.steps(place, "local")
    for step in steps.values():
        step.check(step.act())
    return list(steps)


@pytest.mark.parametrize("each", [1, 2, 5, 10])
@pytest.mark.parametrize("range_bytes", [10_000, 1 << 24])
def test_the_exchange_of_made_digests_is_right(
    each: int, range_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject_ranges, "RANGE_BYTES", range_bytes)
    assert carry_out(replace(FEW_SUBJECTS, each=each), tmp_path) == STEPS


def test_made_digests_count_ten_messages_of_every_subject() -> None:
    digests = [FEW_SUBJECTS.digest(span) for span in range(FEW_SUBJECTS.spans)]
    together = pa.concat_tables(digests).group_by("subject").aggregate([("messages", "sum")])
    assert together.num_rows == FEW_SUBJECTS.subjects
    assert pc.unique(together["messages_sum"]).to_pylist() == [MESSAGES]
    assert all(one["subject"].to_pylist() == sorted(one["subject"].to_pylist()) for one in digests)
    last_seqs = np.concatenate([one["last_seq"].to_numpy() for one in digests])
    assert (np.diff(last_seqs) > 0).all()


def test_another_outcome_of_the_exchange_is_wrong(tmp_path: Path) -> None:
    FEW_SUBJECTS.make(tmp_path)
    step = FEW_SUBJECTS.steps(tmp_path, "local")[STEPS[0]]
    excess = step.act()
    excess.messages[3:5] += [1, -1]
    with pytest.raises(WrongError, match="messages that go, by span"):
        step.check(excess)


def test_a_table_of_another_writers_files_is_described_and_passed_over(tmp_path: Path) -> None:
    assert carry_out(FEW_FILES, tmp_path) == ["plan", "apply", "state"]
    files = list((tmp_path / "streams").glob("*/messages/*/*/part-*.parquet"))
    assert len(files) == FEW_FILES.files
    assert len({file.read_bytes() for file in files}) == FEW_FILES.files
    seqs = [pa.parquet.read_table(file, partitioning=None)["seq"] for file in files]
    together = sorted(pa.chunked_array(chunk for one in seqs for chunk in one.chunks).to_pylist())
    assert together == list(range(1, FEW_FILES.files * MESSAGES_EACH + 1))


def test_files_of_which_only_the_log_is_there_are_passed_over(tmp_path: Path) -> None:
    steps = carry_out(LoggedFiles(FEW_FILES), tmp_path)
    assert steps == ["describe, without opening", "plan", "apply"]
    assert list((tmp_path / "streams").glob("*/messages/*/*/part-*.parquet")) == []


def test_the_fold_of_a_made_log_is_right(tmp_path: Path) -> None:
    work = AckLogs.of(0.001)
    assert carry_out(work, tmp_path) == ["fold"]
    lines = pa.parquet.read_table(tmp_path / "acks.parquet")
    acks, malformed = parse(lines["subject"], lines["data"].cast(pa.binary()))
    assert malformed == []
    assert acks.num_rows == work.acks
    assert sorted(pc.unique(acks["consumer"]).to_pylist()) == list(CONSUMERS)
