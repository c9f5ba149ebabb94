from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.warehouse import Warehouse
from retention.core import headers
from retention.core.counter_names import counters_of
from retention.core.message_rows import complete_rows
from retention.core.outcomes import Outcome
from retention.core.table_updates import SetNextSeq, SetOpenBase
from retention.core.units import HOUR, SECOND
from retention.datafile.parquet import describe, read_columns, stats_table, write_messages
from retention.errors import RefusedError, RetentionError, UsageError
from retention.ingest.mirror.origin import origins_of
from retention.ingest.mirror.run import Mirrored, run_mirror
from retention.ports import Snapshot, Swap
from retention.schemas.deadlines import NEVER
from retention.schemas.files import LOGGED_FILES
from retention.schemas.messages import FILE_COLUMNS
from tests.support.laying import START, File, Laid, lay
from tests.support.plain_store import configured, opened_stream, store_of
from tests.support.sandboxes import NOW, opened

FORMATS = ("delta", "parquet")
ORIGIN = {"name": "O", "subjects": ["o.>"], "allow_msg_ttl": True}
LATER = NOW + HOUR

Rows = list[dict[str, Any]]


@pytest.fixture(params=FORMATS)
def format_(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def line(subject: str, data: str = "x", ts_ns: int = NOW, **named: str) -> str:
    pairs = {name.replace("_", "-"): value for name, value in named.items()}
    return json.dumps({"subject": subject, "data": data, "ts_ns": ts_ns, "headers": pairs})


def mirror_of(name: str = "O", **more: Any) -> dict[str, Any]:
    return {"name": "M", "mirror": {"name": name, **more}}


def sourcing(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "S", "sources": list(sources) or [{"name": "O"}], **more}


def rows(warehouse: Warehouse, name: str) -> Rows:
    return [row for table in warehouse.stream(name).messages() for row in table.to_pylist()]


def seqs(warehouse: Warehouse, name: str) -> list[int]:
    return [row["seq"] for row in rows(warehouse, name)]


def came(outcomes: list[Outcome[Mirrored]]) -> Mirrored:
    (outcome,) = outcomes
    assert outcome.value is not None, outcome.sentence
    return outcome.value


def refusal(outcomes: list[Outcome[Mirrored]]) -> str:
    (outcome,) = outcomes
    assert isinstance(outcome.error, RefusedError)
    return outcome.sentence


def next_seq(warehouse: Warehouse, name: str) -> int:
    return warehouse.stream(name).opened.store.snapshot().counters.next_seq[0]


def test_a_mirror_keeps_sequences_times_headers_and_deadlines(tmp_path: Path, format_: str) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of(), format=format_)
    given = [
        line("o.a", "1", START),
        line("o.b", "2", START - HOUR, Nats_TTL="1h"),
        line("o.a", "3", START, Nats_TTL="never", Nats_Msg_Id="i"),
    ]
    warehouse.stream("O").publish(given)
    done = came(warehouse.mirror())
    assert (done.messages, done.first_seq, done.last_seq) == (3, 1, 3)
    assert rows(warehouse, "M") == rows(warehouse, "O")
    assert [row["deadline_ns"] for row in opened_rows(warehouse, "M")] == [None, START, NEVER]


def opened_rows(warehouse: Warehouse, name: str) -> Rows:
    """All columns, deadlines included."""
    store = warehouse.stream(name).opened.store
    files = store.data_files(store.snapshot().files)
    found = [row for f in files for row in read_columns(f, FILE_COLUMNS.names)[0].to_pylist()]
    return sorted(found, key=lambda row: int(row["seq"]))


def test_gaps_of_the_origin_stay_gaps_and_so_does_its_end(tmp_path: Path, format_: str) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of(), format=format_)
    origin = warehouse.stream("O").opened
    lay(origin, [File(3, [Laid(3), Laid(7)]), File(9, [Laid(12), Laid(20)])])
    swap = Swap(
        LOGGED_FILES.empty_table(), stats_table([]), {"run": "tail"}, updates=[SetNextSeq(0, 31)]
    )
    origin.store.commit(swap, origin.store.snapshot())
    assert came(warehouse.mirror()).messages == 4
    assert seqs(warehouse, "M") == [3, 7, 12, 20]
    assert next_seq(warehouse, "M") == 31


def test_a_second_run_brings_only_what_is_new(tmp_path: Path, format_: str) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of(), sourcing(), format=format_)
    warehouse.stream("O").publish([line("o.a"), line("o.b")])
    assert [one.value.messages for one in warehouse.mirror() if one.value] == [2, 2]
    versions = [warehouse.stream(name).opened.store.snapshot().version for name in "MS"]
    assert [one.value.messages for one in warehouse.mirror() if one.value] == [0, 0]
    assert versions == [warehouse.stream(name).opened.store.snapshot().version for name in "MS"]
    warehouse.stream("O").publish([line("o.c")])
    again = warehouse.mirror()
    assert [(one.value.first_seq, one.value.last_seq) for one in again if one.value] == [(3, 3)] * 2
    assert seqs(warehouse, "M") == seqs(warehouse, "S") == [1, 2, 3]


def test_a_source_stores_anew_and_says_where_from(tmp_path: Path, format_: str) -> None:
    transforms = [{"src": "o.b.*", "dest": "p.{{wildcard(1)}}"}, {"src": "o.a", "dest": ""}]
    target = sourcing(
        {"name": "O", "subject_transforms": transforms},
        subject_transform={"src": "p.>", "dest": "q.>"},
        subject_delete_marker_ttl="2h",
    )
    warehouse = opened(tmp_path, ORIGIN, target, format=format_)
    given = [
        line("o.c", "no"),
        line("o.b.x", "1", START, A="1", Nats_TTL="1h", B="2"),
        line("o.a", "2", START, Nats_Expected_Last_Sequence="2"),
        line("o.a", "3", START, Nats_TTL="never"),
    ]
    warehouse.stream("O").publish(given)
    done = came(warehouse.mirror(as_of=NOW - 5))
    assert (done.messages, done.origins[0].skipped, done.origins[0].position) == (3, 1, 4)
    found = opened_rows(warehouse, "S")
    assert [(row["seq"], row["subject"]) for row in found] == [(1, "q.x"), (2, "o.a"), (3, "o.a")]
    assert {row["ts_ns"] for row in found} == {NOW - 5}
    assert {row["origin_ts_ns"] for row in found} == {START}
    assert [row["deadline_ns"] for row in found] == [NOW - 5 + 2 * HOUR, None, NEVER]
    selection = "o.b.*\x0co.a p.{{wildcard(1)}}\x0c>"
    named = [headers.parse(row["headers"]) for row in found]
    identity = named[0][2][1].rpartition(" ")[2]
    assert len(identity) == 8
    assert named == [
        [
            ("A", "1"),
            ("B", "2"),
            ("Nats-Stream-Source", f"O 2 {selection} o.b.x {identity}"),
            ("Nats-TTL", "7200"),
        ],
        [("Nats-Stream-Source", f"O 3 {selection} o.a {identity}")],
        [("Nats-TTL", "never"), ("Nats-Stream-Source", f"O 4 {selection} o.a {identity}")],
    ]


def test_a_source_of_a_source_names_only_the_last_stream(tmp_path: Path) -> None:
    chain = {"name": "A", "sources": [{"name": "S"}]}
    warehouse = opened(tmp_path, chain, sourcing(), ORIGIN)
    warehouse.stream("O").publish([line("o.a")])
    assert [one.stream for one in warehouse.mirror()] == ["S", "A"]
    ((name, value),) = headers.parse(rows(warehouse, "A")[0]["headers"])
    assert name == "Nats-Stream-Source"
    assert value.startswith("S 1 > > o.a ")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"filter_subject": "o.*.x"}, [2, 5]),
        ({"opt_start_seq": 4}, [4, 5, 6]),
        ({"opt_start_time": "2023-11-14T22:13:23Z"}, [3, 4, 5, 6]),
        ({"opt_start_time": "2030-01-01T00:00:00Z"}, []),
        ({"subject_transforms": [{"src": "o.b.>", "dest": "b.>"}]}, [2, 3]),
    ],
)
def test_filters_and_starts_choose(
    tmp_path: Path, format_: str, more: dict[str, Any], expected: list[int]
) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of(**more), format=format_)
    subjects = ["o.a", "o.b.x", "o.b.y", "o.c", "o.d.x", "o.c"]
    times = [0, 1, 3, 2, 1, 5]
    laid = [
        Laid(seq, subject, START + times[seq - 1] * SECOND)
        for seq, subject in enumerate(subjects, 1)
    ]
    lay(warehouse.stream("O").opened, [File(1, laid[:4]), File(5, laid[4:])])
    assert came(warehouse.mirror()).messages == len(expected)
    assert seqs(warehouse, "M") == expected
    assert next_seq(warehouse, "M") == 7


def test_what_the_origin_lost_meanwhile_is_missing_and_told(tmp_path: Path, format_: str) -> None:
    warehouse = opened(tmp_path, {**ORIGIN, "max_msgs": 2}, mirror_of(), format=format_)
    warehouse.stream("O").publish([line("o.a")] * 3)
    assert came(warehouse.mirror()).origins[0].missing == 0
    warehouse.stream("O").publish([line("o.a")] * 6)
    warehouse.apply(["O"])
    assert came(warehouse.mirror()).origins[0].missing == 4
    assert seqs(warehouse, "M") == [1, 2, 3, 8, 9]


def test_removals_at_the_origin_are_not_replicated_and_limits_are_each_ones_own(
    tmp_path: Path,
) -> None:
    own = {**mirror_of(), "max_msgs": 4}
    warehouse = opened(tmp_path, {**ORIGIN, "max_msgs": 2}, own)
    warehouse.stream("O").publish([line("o.a")] * 5)
    warehouse.mirror()
    warehouse.apply()
    warehouse.mirror()
    assert (seqs(warehouse, "O"), seqs(warehouse, "M")) == ([4, 5], [2, 3, 4, 5])


def test_a_mirror_without_ttls_ignores_them_but_for_never(tmp_path: Path) -> None:
    own = {**mirror_of(), "max_age": "1h"}
    warehouse = opened(tmp_path, ORIGIN, own, now_ns=NOW)
    given = [line("o.a", ts_ns=NOW - 2 * HOUR, Nats_TTL="never"), line("o.a", Nats_TTL="1s")]
    warehouse.stream("O").publish(given)
    warehouse.mirror()
    later = opened(tmp_path, ORIGIN, own, now_ns=NOW + 60 * SECOND)
    later.apply(["M"])
    assert seqs(later, "M") == [1, 2]


def test_an_origin_made_anew_is_refused_and_nothing_copied(tmp_path: Path, format_: str) -> None:
    streams = (ORIGIN, mirror_of(), sourcing())
    warehouse = opened(tmp_path, *streams, format=format_)
    warehouse.stream("O").publish([line("o.a")] * 3)
    warehouse.mirror()
    shutil.rmtree(tmp_path / "streams" / "O")
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    for name in ("M", "S"):
        assert "O was deleted or" in refusal(
            opened(tmp_path, *streams, format=format_).mirror([name])
        )
    opened(tmp_path, *streams, format=format_).stream("O").publish([line("o.a")] * 5)
    for name in ("M", "S"):
        again = opened(tmp_path, *streams, format=format_)
        assert "O was deleted or recreated" in refusal(again.mirror([name]))
        assert seqs(again, name) == [1, 2, 3]


def test_an_origin_set_back_to_an_older_state_is_refused(tmp_path: Path, format_: str) -> None:
    streams = (ORIGIN, mirror_of())
    warehouse = opened(tmp_path, *streams, format=format_)
    warehouse.stream("O").publish([line("o.a")] * 3)
    shutil.copytree(tmp_path / "streams" / "O", tmp_path / "kept")
    warehouse.stream("O").publish([line("o.a")] * 3)
    warehouse.mirror()
    shutil.rmtree(tmp_path / "streams" / "O")
    shutil.copytree(tmp_path / "kept", tmp_path / "streams" / "O")
    again = opened(tmp_path, *streams, format=format_)
    assert "up to 6 were copied already, and its last is 3" in refusal(again.mirror())


def test_a_mirror_that_others_wrote_to_is_refused(tmp_path: Path, format_: str) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of(), format=format_)
    warehouse.stream("O").publish([line("o.a")] * 3)
    warehouse.mirror()
    alone = opened(tmp_path, {"name": "M", "subjects": ["o.>"]}, format=format_)
    alone.stream("M").publish([line("o.z")])
    again = opened(tmp_path, ORIGIN, mirror_of(), format=format_)
    again.stream("O").publish([line("o.a")] * 3)
    assert "up to 3, and its next is 5" in refusal(again.mirror())


def test_a_mirror_keeps_its_origin_and_its_filters(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of())
    warehouse.stream("O").publish([line("o.a")])
    warehouse.mirror()
    changed = opened(tmp_path, ORIGIN, mirror_of(filter_subject="o.b"))
    assert "has other filters" in refusal(changed.mirror())


def test_a_backup_of_the_origin_may_come_first(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of())
    origin = warehouse.stream("O").opened
    lay(origin, [File(1, [Laid(seq) for seq in range(1, 9)])])
    lay(warehouse.stream("M").opened, [File(1, [Laid(seq) for seq in range(1, 6)])])
    assert came(warehouse.mirror()).messages == 3
    assert seqs(warehouse, "M") == list(range(1, 9))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("M", [1, 2, 3, 11, 12, 13, 21, 22, 23, 31, 32, 33]), ("S", list(range(1, 13)))],
)
def test_parts_are_commits_of_their_own(
    tmp_path: Path,
    format_: str,
    name: str,
    expected: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of(), sourcing(), format=format_)
    files = [File(at, [Laid(at), Laid(at + 1), Laid(at + 2)]) for at in (1, 11, 21, 31)]
    lay(warehouse.stream("O").opened, files)
    target = warehouse.stream(name).opened
    commits: list[Swap] = []
    commit = target.store.commit

    def noted(swap: Swap, at: Snapshot) -> int:
        commits.append(swap)
        return commit(swap, at)

    monkeypatch.setattr(target.store, "commit", noted)
    origins = list(origins_of(target.config, lambda name: warehouse.stream(name).opened))
    done = run_mirror(target, origins, NOW, part_bytes=180)
    assert (done.messages, done.origins[0].position) == (12, 33)
    assert [set(counters_of(swap.sets).batches.values()) for swap in commits] == [{13}, {33}]
    assert seqs(warehouse, name) == expected


@pytest.mark.parametrize("name", ["M", "S"])
def test_a_rival_that_mirrors_the_same_comes_first_or_second_and_nothing_twice(
    tmp_path: Path, format_: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = (ORIGIN, mirror_of(), sourcing())
    warehouse = opened(tmp_path, *streams, format=format_)
    warehouse.stream("O").publish([line("o.a")] * 4)
    target = warehouse.stream(name).opened
    commit = target.store.commit
    rivals: list[Callable[[], Any]] = []

    def theirs() -> None:
        # No lease: as after its expiry during a pause of its holder.
        rival = opened(tmp_path, *streams, format=format_)
        rival.stream("O").publish([line("o.b")] * 2)
        monkeypatch.setattr("retention.ingest.turns.lease", _no_lease)
        assert came(rival.mirror([name])).messages == 6

    def late(swap: Swap, at: Snapshot) -> int:
        if rivals:
            rivals.pop()()
        return commit(swap, at)

    rivals.append(theirs)
    monkeypatch.setattr(target.store, "commit", late)
    origins = list(origins_of(target.config, lambda name: warehouse.stream(name).opened))
    done = run_mirror(target, origins, NOW)
    assert (done.messages, done.origins[0].skipped, done.origins[0].position) == (0, 0, 4)
    assert seqs(warehouse, name) == list(range(1, 7))


def _no_lease(*_: Any, **__: Any) -> AbstractContextManager[None]:
    return nullcontext()


def test_an_appender_at_the_origin_meanwhile_is_for_the_next_run(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = opened(tmp_path, {**ORIGIN, "max_msgs": 2}, mirror_of(), format=format_)
    warehouse.stream("O").publish([line("o.a")] * 4)
    target = warehouse.stream("M").opened
    create = target.store.create

    def late() -> None:
        create()
        rival = opened(tmp_path, {**ORIGIN, "max_msgs": 2}, mirror_of(), format=format_)
        rival.stream("O").publish([line("o.b")])
        rival.apply(["O"])

    monkeypatch.setattr(target.store, "create", late)
    origins = list(origins_of(target.config, lambda name: warehouse.stream(name).opened))
    assert run_mirror(target, origins, NOW).origins[0].position == 4
    assert seqs(warehouse, "M") == [1, 2, 3, 4]
    warehouse = opened(tmp_path, ORIGIN, mirror_of(), format=format_)
    assert came(warehouse.mirror()).messages == 1


@pytest.mark.parametrize(
    ("limits", "taken", "reason"),
    [
        ({"max_msgs": 3, "discard": "new"}, 3, r"sequence 4 of O .*10077.*maximum messages"),
        ({"max_bytes": 70, "discard": "new"}, 2, r"sequence 3 of O .*10077.*maximum bytes"),
        ({"max_msg_size": 5}, 4, r"sequence 5 of O .*10054.*max_msg_size"),
    ],
)
def test_a_message_that_a_mirror_refuses_stalls_it(
    tmp_path: Path, limits: dict[str, Any], taken: int, reason: str
) -> None:
    warehouse = opened(tmp_path, ORIGIN, {**mirror_of(), **limits})
    warehouse.stream("O").publish([*[line("o.a")] * 4, line("o.a", "longer"), line("o.a")])
    for _ in range(2):
        (outcome,) = warehouse.mirror()
        with pytest.raises(RefusedError, match=reason):
            raise outcome.error or AssertionError
        assert seqs(warehouse, "M") == list(range(1, taken + 1))
        assert next_seq(warehouse, "M") == taken + 1
    (outcome,) = opened(tmp_path, ORIGIN, mirror_of()).mirror()
    assert outcome.error is None
    assert seqs(warehouse, "M") == list(range(1, 7))


def test_room_that_a_pass_makes_lets_the_mirror_go_on(tmp_path: Path) -> None:
    own = {**mirror_of(), "max_msgs": 2, "discard": "new", "max_age": "1h"}
    warehouse = opened(tmp_path, ORIGIN, own)
    given = [line("o.a", ts_ns=NOW - 2 * HOUR)] * 2 + [line("o.a")] * 2
    warehouse.stream("O").publish(given)
    refusal(warehouse.mirror())
    warehouse.apply(["M"])
    assert came(warehouse.mirror()).messages == 2
    assert seqs(warehouse, "M") == [3, 4]


def test_ids_are_looked_at_only_with_a_window(tmp_path: Path) -> None:
    both = ({"name": "O"}, {"name": "P"})
    with_window = {**sourcing(*both), "duplicate_window": "2m"}
    without = {**sourcing(*both), "name": "T"}
    second = {"name": "P", "subjects": ["p.>"]}
    warehouse = opened(tmp_path, ORIGIN, second, with_window, without)
    warehouse.stream("O").publish([line("o.a", Nats_Msg_Id="1"), line("o.a")])
    warehouse.stream("P").publish([line("p.a", Nats_Msg_Id="1"), line("p.a", Nats_Msg_Id="2")])
    counts = {one.stream: one.value.messages for one in warehouse.mirror() if one.value}
    assert counts == {"S": 3, "T": 4}
    assert [row["subject"] for row in rows(warehouse, "S")] == ["o.a", "o.a", "p.a"]


def test_an_origin_without_messages_gives_nothing(tmp_path: Path, format_: str) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of(), format=format_)
    done = came(warehouse.mirror())
    assert (done.messages, done.first_seq, done.last_seq) == (0, 1, 0)
    assert not warehouse.stream("M").opened.store.exists()


@pytest.mark.parametrize(
    ("config", "name", "kind", "words"),
    [
        (ORIGIN, "O", UsageError, "no mirror and no sources"),
        (mirror_of("NONE"), "M", UsageError, "NONE: there is no such stream"),
        (mirror_of(external={"api": "x"}), "M", RefusedError, "another account"),
        ({**mirror_of(), "sealed": True}, "M", RefusedError, "10109"),
    ],
)
def test_what_cannot_be_mirrored_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], name: str, kind: type[RetentionError], words: str
) -> None:
    others = [] if config is ORIGIN else [ORIGIN]
    (outcome,) = opened(tmp_path, *others, config).mirror([name])
    with pytest.raises(kind, match=words):
        raise outcome.error or AssertionError


def test_messages_cannot_be_stored_later_than_now(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="later than now"):
        opened(tmp_path, ORIGIN, mirror_of()).mirror(as_of=NOW + 1)


def test_files_of_others_that_interleave_or_are_unsorted_come_in_order(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORIGIN, mirror_of())
    odd = [File(1, [Laid(1), Laid(5), Laid(9)]), File(1, [Laid(2), Laid(3), Laid(10)])]
    lay(warehouse.stream("O").opened, odd)
    assert came(warehouse.mirror()).messages == 6
    assert seqs(warehouse, "M") == [1, 2, 3, 5, 9, 10]


ROLLING = {**ORIGIN, "allow_rollup_hdrs": True}
"""An origin has applied them; here they are stored together with the replaced messages."""


def with_roll_ups(warehouse: Warehouse) -> None:
    """Two values of a before a rollup of a, and b before and after a rollup of everything."""
    asked = {3: "sub", 5: "all"}
    raw = {
        "seq": list(range(1, 8)),
        "subject": ["o.a", "o.b", "o.a", "o.a", "o.b", "o.a", "o.b"],
        "ts_ns": [START] * 7,
        "headers": [
            headers.build([("Nats-Rollup", asked[seq])]) if seq in asked else None
            for seq in range(1, 8)
        ],
        "payload": [b"x"] * 7,
    }
    store = warehouse.stream("O").opened.store
    store.create()
    [file] = store.stage(0, 1)
    write_messages(file.location, [complete_rows(pa.table(raw), "file")])
    swap = Swap(
        LOGGED_FILES.empty_table(),
        stats_table([describe(file).stats]),
        {"run": "laid"},
        updates=[SetNextSeq(0, 8), SetOpenBase(0, 1)],
    )
    store.commit(swap, store.snapshot())


@pytest.mark.parametrize("name", ["M", "S"])
def test_roll_ups_are_stored_and_take_only_where_the_target_allows_them(
    tmp_path: Path, format_: str, name: str
) -> None:
    for allowed, expected in ((False, [1, 2, 3, 4, 5, 6, 7]), (True, [5, 6, 7])):
        folder = tmp_path / str(allowed)
        own = {"allow_rollup_hdrs": allowed}
        targets = ({**mirror_of(), **own}, {**sourcing(), **own})
        warehouse = opened(folder, ROLLING, *targets, format=format_)
        with_roll_ups(warehouse)
        assert came(warehouse.mirror([name])).messages == len(expected)
        assert seqs(warehouse, name) == expected
        assert next_seq(warehouse, name) == 8


def test_a_carried_roll_up_takes_what_is_stored_on_record(tmp_path: Path, format_: str) -> None:
    own = {"name": "S", "subjects": ["s.>"], "sources": [{"name": "O"}], "allow_rollup_hdrs": True}
    warehouse = opened(tmp_path, ROLLING, own, format=format_)
    warehouse.stream("O").publish([line("o.a"), line("o.b")])
    warehouse.mirror()
    warehouse.stream("O").publish([line("o.a", Nats_Rollup="sub"), line("o.c")])
    done = came(warehouse.mirror())
    assert (done.messages, done.origins[0].rolled_up) == (2, 1)
    assert seqs(warehouse, "S") == [2, 3, 4]
    (run,) = warehouse.stream("S").history()
    assert run["removed_messages"] == 1
    warehouse.undo(run["run"])
    assert seqs(warehouse, "S") == [1, 2, 3, 4]


def test_room_that_a_roll_up_makes_counts(tmp_path: Path) -> None:
    own = {"allow_rollup_hdrs": True, "max_msgs": 2, "discard": "new"}
    warehouse = opened(tmp_path, ROLLING, {**sourcing(), **own})
    warehouse.stream("O").publish([line("o.a"), line("o.c", Nats_Rollup="all"), line("o.c")])
    assert came(warehouse.mirror()).messages == 2
    warehouse.stream("O").publish([line("o.a")])
    assert "maximum messages" in refusal(warehouse.mirror())


def test_an_id_that_comes_twice_in_one_run_is_stored_once(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORIGIN, {**sourcing(), "duplicate_window": "2m"})
    far_apart = [line("o.a", str(n), START + n * HOUR, Nats_Msg_Id="1") for n in range(3)]
    warehouse.stream("O").publish([*far_apart, line("o.a", Nats_Msg_Id="2")])
    done = came(warehouse.mirror())
    assert (done.messages, done.origins[0].skipped) == (2, 2)
    assert [row["payload"] for row in rows(warehouse, "S")] == [b"0", b"x"]


@pytest.mark.parametrize("seed", range(20))
def test_any_runs_and_parts_over_any_files_come_to_the_same(tmp_path: Path, seed: int) -> None:
    """Twenty random origins, growing between runs, read by a mirror and by a source."""
    chance = random.Random(seed)
    choices: list[dict[str, Any]] = [
        {},
        {"filter_subject": "a.*"},
        {"opt_start_seq": chance.randrange(40)},
    ]
    source = chance.choice(choices)
    origin = opened_stream(tmp_path / "O", subjects=("a.*", "b"))
    taking = {
        "mirror": configured(
            opened_stream(tmp_path / "M"), subjects=(), mirror={"name": "ORDERS", **source}
        ),
        "source": configured(
            opened_stream(tmp_path / "S"), sources=({"name": "ORDERS", **source},)
        ),
    }
    laid: list[Laid] = []
    for _ in range(3):
        files = []
        for _ in range(chance.randrange(3)):
            first = (laid[-1].seq if laid else 0) + chance.randrange(1, 9)
            seqs = sorted(chance.sample(range(first, first + 12), chance.randrange(1, 9)))
            new = [Laid(seq, chance.choice(["a.x", "a.y", "b"]), START + seq) for seq in seqs]
            cuts = [part for part in (new[0::2], new[1::2]) if part]
            files += [File(first, part) for part in chance.choice([[new], cuts])]
            laid += new
        if files:
            lay(origin, files)
        for target in taking.values():
            origins = list(origins_of(target.config, lambda _: origin))
            done = run_mirror(target, origins, NOW, chance.choice([1, 200, 10**9]))
            assert done.origins[0].position == (laid[-1].seq if laid else 0)
    wanted = [
        one
        for one in laid
        if one.seq >= source.get("opt_start_seq", 0)
        and ("filter_subject" not in source or one.subject != "b")
    ]
    if laid:
        mirrored, sourced = (store_of(target).rows().to_pylist() for target in taking.values())
        expected = [(one.seq, one.subject, one.ts_ns) for one in wanted]
        assert [(row["seq"], row["subject"], row["ts_ns"]) for row in mirrored] == expected
        assert [row["seq"] for row in sourced] == list(range(1, len(wanted) + 1))
        assert [row["origin_ts_ns"] for row in sourced] == [one.ts_ns for one in wanted]
