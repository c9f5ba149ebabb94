from __future__ import annotations

from pathlib import Path

import pytest

from retention.errors import StalePlanError, UsageError
from retention.ingest.idempotency import batch_identity
from retention.inspect.messages import Selection
from retention.plan.planfile import load_plans
from tests.support.sandboxes import NOW, ORDERS, lines, opened


def test_a_plan_is_explained_saved_and_applied(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(240))
    plan = stream.plan()
    assert plan.explain(1).goes
    assert not plan.explain(240).goes
    plan.save(tmp_path / "plan.json")
    (saved,) = load_plans(str(tmp_path / "plan.json"))
    assert saved.plan_id == plan.plan.plan_id == plan.as_json()["plan_id"]
    assert plan.to_pandas()["removed_messages"].sum() == plan.plan.removed_messages
    report = plan.apply()
    assert report.removed_messages == plan.plan.removed_messages > 0
    assert "removed" in repr(report)
    assert "removed" in report._repr_html_()
    assert stream.history()[0]["run"] == report.run


def test_a_plan_of_a_stream_that_has_changed_is_stale(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(240))
    plan = stream.plan()
    stream.plan().apply()
    with pytest.raises(StalePlanError):
        plan.apply()


@pytest.mark.parametrize("as_of", [NOW, str(NOW), "2027-01-15T08:00:00Z", None])
def test_an_instant_is_text_a_number_or_now(tmp_path: Path, as_of: str | int | None) -> None:
    assert opened(tmp_path, ORDERS).stream("ORDERS").plan(as_of).plan.header.as_of_ns == NOW


def test_what_is_no_instant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'yesterday' is not an instant"):
        opened(tmp_path, ORDERS).stream("ORDERS").plan("yesterday")


def test_a_file_of_lines_is_published(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(lines(3)), encoding="utf-8")
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    assert stream.publish(file).appended.messages == 3
    assert stream.publish(lines(2), writer="w", batch=1).appended.messages == 2
    assert stream.publish(lines(2), writer="w", batch=1).appended.duplicate


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        opened(tmp_path, ORDERS).stream("ORDERS").publish(tmp_path / "missing.jsonl")


def test_writer_and_batch_belong_together() -> None:
    assert batch_identity(None, None) is None
    for writer, batch in (("w", None), (None, 1)):
        with pytest.raises(UsageError, match="belong together"):
            batch_identity(writer, batch)


def test_values_show_themselves(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(240))
    plan = stream.plan()
    for shown in (plan, plan.explain(1), stream.state()):
        assert "ORDERS" in repr(shown)
        assert "ORDERS" in shown._repr_html_()
    assert repr(stream) == f"Stream('ORDERS' in {tmp_path})"


def test_messages_come_as_tables(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(48))
    assert sum(table.num_rows for table in stream.messages()) == 48
    assert sum(table.num_rows for table in stream.messages(Selection(last=5))) == 5
