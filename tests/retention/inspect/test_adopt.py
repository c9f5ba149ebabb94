from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.core.units import DAY
from retention.errors import RefusedError, UsageError
from retention.inspect.adopt import age_effect, chosen_time, look_at
from retention.inspect.time_guess import likeliest
from tests.support.delta_tables import PROTOCOL, add, metadata, write_entry
from tests.support.foreign_tables import write_table

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 10**9


@pytest.mark.parametrize(
    ("kind", "time", "unit", "keys", "expiries"),
    [
        ("kafka", ["timestamp"], None, [], []),
        ("clicks", ["event_ts", "_ingested_at"], None, ["event_id", "tenant_id"], []),
        ("changes", ["ts_ms"], "ms", ["id"], []),
        ("sessions", ["created_at"], None, ["session_id"], ["expires_at"]),
        ("devices", ["time"], "s", ["device"], []),
        ("invoices", [], None, ["customer"], []),
    ],
)
def test_tables_of_usual_writers_are_recognised(
    tmp_path: Path,
    kind: str,
    time: list[str],
    unit: str | None,
    keys: list[str],
    expiries: list[str],
) -> None:
    look, _ = look_at(write_table(tmp_path, kind, NOW), NOW_NS)
    likely = likeliest(look.times)
    assert [each.path[0] for each in likely] == time
    assert [each.unit for each in likely[:1]] == [unit][: len(likely)]
    assert ([path[0] for path in look.keys], [path[0] for path in look.expiries]) == (
        keys,
        expiries,
    )
    assert (look.rows, look.files, look.vectors, look.uncounted_files) == (400, 4, 0, 0)
    assert look.bytes == sum(path.stat().st_size for path in (tmp_path / kind).glob("*.parquet"))
    assert [count for _, count in look.writers] == [4]


@pytest.mark.parametrize("max_age", [5 * DAY, 10 * DAY, 30 * DAY, 90 * DAY])
@pytest.mark.parametrize(
    ("kind", "column"), [("clicks", "event_ts"), ("clicks", "event_date"), ("devices", "time")]
)
def test_the_bounds_of_an_effect_contain_the_truth(
    tmp_path: Path, kind: str, column: str, max_age: int
) -> None:
    place = write_table(tmp_path, kind, NOW)
    look, table = look_at(place, NOW_NS)
    effect = age_effect(table, chosen_time(look, column), max_age, NOW_NS)
    cutoff = NOW - timedelta(seconds=max_age // 10**9)

    def is_old(value: object) -> bool:
        if isinstance(value, int):
            return datetime.fromtimestamp(value, UTC) <= cutoff
        if isinstance(value, datetime):
            return value <= cutoff
        return datetime.fromisoformat(f"{value}T00:00:00Z") + timedelta(days=1) <= cutoff

    old = [
        [is_old(value) for value in pa.table(file)[column].to_pylist()]
        for file in DeltaTable(place).to_pyarrow_dataset().to_batches()
    ]
    assert effect.rows_at_least <= sum(map(sum, old)) <= effect.rows_at_most
    assert effect.whole_files == sum(map(all, old))
    assert effect.cut_files == sum(any(file) and not all(file) for file in old)


def test_a_day_is_as_old_as_its_end(tmp_path: Path) -> None:
    day = '{"numRecords":3,"minValues":{"d":"2026-11-18"},"maxValues":{"d":"2026-11-18"},"nullCount":{"d":0}}'
    write_entry(tmp_path, 0, [PROTOCOL, metadata(("d", "date")), add("a.parquet", stats=day)])
    look, table = look_at(str(tmp_path), NOW_NS)
    effects = [age_effect(table, look.times[0], DAY, NOW_NS + ns) for ns in (-1, 0)]
    assert [(each.whole_files, each.cut_files) for each in effects] == [(0, 0), (1, 0)]


def test_files_without_a_time_in_their_statistics_must_be_read(tmp_path: Path) -> None:
    stats = '{"numRecords":3,"minValues":{"at":"2020-01-01T00:00:00Z"},"maxValues":{"at":"2020-01-02T00:00:00Z"},'
    actions = [
        *(PROTOCOL, metadata(("at", "timestamp"))),
        add("null.parquet", stats=stats + '"nullCount":{"at":1}}', size=5),
        add("whole.parquet", stats=stats + '"nullCount":{"at":0}}', size=7),
        add("bare.parquet", size=11),
    ]
    write_entry(tmp_path, 0, actions)
    look, table = look_at(str(tmp_path), NOW_NS)
    effect = age_effect(table, look.times[0], DAY, NOW_NS)
    assert (look.rows, look.uncounted_files) == (6, 1)
    assert (effect.whole_files, effect.whole_bytes, effect.rows_at_least) == (1, 7, 3)
    assert (effect.cut_files, effect.cut_bytes, effect.rows_at_most) == (2, 16, 6)
    assert look.writers == (("an unnamed program: no operation", 1),)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("at", "there is no column at; there are id, mixed, when, many, s.ts"),
        ("mixed", "the smallest and the largest disagree"),
        ("many", "many is of type array"),
        ("when", "when is of type string, which has no times; name a column of type date"),
    ],
)
def test_a_named_column_that_has_no_times_is_refused(
    tmp_path: Path, column: str, text: str
) -> None:
    rows = {
        "id": [1],
        "mixed": [10**9],
        "when": ["2026-01-01"],
        "many": [[1]],
        "s": [{"ts": 1_700_000_000}],
    }
    write_deltalake(tmp_path / "t", pa.table(rows))
    write_deltalake(tmp_path / "t", pa.table({**rows, "mixed": [10**12]}), mode="append")
    look, _ = look_at(str(tmp_path / "t"), NOW_NS)
    assert chosen_time(look, "s.ts").unit == "s"
    with pytest.raises(UsageError, match=text):
        chosen_time(look, column)


def test_a_table_from_which_nothing_may_be_removed_is_refused_until_it_may(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this is no table"):
        look_at(str(tmp_path), NOW_NS)
    kept = {"delta.appendOnly": "true"}
    write_deltalake(tmp_path / "t", pa.table({"at": [1]}), configuration=kept)
    with pytest.raises(RefusedError, match=r"delta\.appendOnly is true"):
        look_at(str(tmp_path / "t"), NOW_NS)
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.appendOnly": "false"})
    assert look_at(str(tmp_path / "t"), NOW_NS)[0].rows == 1
