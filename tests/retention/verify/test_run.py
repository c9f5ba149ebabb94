"""A verification goes on where it was interrupted, reads a sample, and covers tables in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention.core.units import DAY
from retention.errors import UsageError
from retention.storage import files
from retention.stores.sidecar.last_verification import last_verification
from retention.verify import data_files, run
from retention.verify.data_files import VerifiedFile, VerifyTask
from tests.retention.api.test_table import warehouse as warehouse_of_table
from tests.retention.verify.test_damages import flip
from tests.support.command_line import invoke
from tests.support.sandboxes import NOW, ORDERS, lines, opened

SMALL = {**ORDERS, "segment_size": "1KiB"}


def test_an_interrupted_verification_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(tmp_path, SMALL, engine="local").new_stream("ORDERS")
    stream.publish(lines(100))
    monkeypatch.setattr(run, "TASK_FILES", 1)
    monkeypatch.setattr(run, "ROUND_TASKS", 1)
    read: list[str] = []

    def interrupted(task: VerifyTask) -> list[VerifiedFile]:
        if len(read) == 2:
            raise KeyboardInterrupt
        read.extend(each.file.path for each in task.files)
        return data_files.verify_files(task)

    monkeypatch.setattr(run, "verify_files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.verify()
    assert last_verification(stream.opened.root) is None
    monkeypatch.setattr(run, "verify_files", data_files.verify_files)
    flip(Path(stream.opened.layout.live(read[0])), 60)
    result = stream.verify()
    assert (result.resumed_files, result.read_files, result.verdict) == (2, result.files, "ok")
    assert stream.verify().verdict == "damaged", "a later one reads every file"
    last = last_verification(stream.opened.root)
    assert last is not None
    assert (last.verdict, last.damages, last.files) == ("damaged", 1, result.files)
    assert files.names(f"{stream.opened.root}/_retention/verifying") == []


def test_an_old_interruption_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(tmp_path, SMALL, engine="local").new_stream("ORDERS")
    stream.publish(lines(50))
    with monkeypatch.context() as patched:
        patched.setattr(run, "keep_last", lambda _, result: result)
        assert stream.verify().resumed_files == 0
    assert opened(tmp_path, SMALL, engine="local").stream("ORDERS").verify().resumed_files > 1
    with monkeypatch.context() as patched:
        patched.setattr(run, "keep_last", lambda _, result: result)
        stream.verify()
    later = opened(tmp_path, SMALL, engine="local", now_ns=NOW + 8 * DAY)
    assert later.stream("ORDERS").verify().resumed_files == 0


def test_a_sample_reads_a_share_of_the_files(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, SMALL, engine="local")
    warehouse.new_stream("ORDERS").publish(lines(100))
    [outcome] = warehouse.verify(["ORDERS"], sample="50%")
    result = outcome.value
    assert result is not None
    assert 0 < result.read_files == round(result.files / 2) < result.files
    for sample in ("0%", "101%", "x", "-1%", 1.5):
        with pytest.raises(UsageError, match="is not a sample"):
            warehouse.verify(["ORDERS"], sample=sample)


def test_a_damage_ends_the_command_with_6(tmp_path: Path) -> None:
    stream = opened(tmp_path, SMALL, engine="local").new_stream("ORDERS")
    stream.publish(lines(10))
    config = ["--config", str(tmp_path / "retention.yaml"), "verify"]
    done = invoke([*config, "ORDERS"])
    assert (done.exit_code, done.stdout.startswith("ORDERS: ok: read ")) == (0, True)
    files.delete([str(next((tmp_path / "streams/ORDERS/messages").rglob("*.parquet")))])
    done = invoke([*config, "ORDERS"])
    assert (done.exit_code, "→ restore the file from a copy" in done.stdout) == (6, True)


def test_a_table_in_place_is_verified_as_far_as_it_is_ours(tmp_path: Path) -> None:
    warehouse = warehouse_of_table(tmp_path)
    table = warehouse.table("events")
    result = table.verify()
    assert (result.verdict, result.files, result.read_files) == ("ok", 1, 0)
    report = table.plan().apply()
    result = table.verify()
    assert (result.verdict, result.files, result.read_files) == ("ok", 1, 1)
    copy = max((tmp_path / "events").glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    flip(copy, 60)
    assert [each.check for each in table.verify().damages] == ["content"]
    flip(copy, 60)
    record = tmp_path / "warehouse/tables/events/evidence" / f"{report.run}.parquet"
    kept = record.read_bytes()
    record.write_bytes(kept[:100])
    assert [each.check for each in table.verify().damages] == ["evidence"]
    record.write_bytes(kept)
    table.undo(report.run)
    assert (table.verify().verdict, last_verification(table.opened.home) is None) == ("ok", False)
    copy.unlink()
    [outcome] = warehouse.verify()
    assert outcome.value is not None
    assert outcome.value.verdict == "ok", "the undo took the copy out of the table"
