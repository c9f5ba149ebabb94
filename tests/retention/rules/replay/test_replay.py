from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.units import SECOND
from retention.rules.replay.broker import Broker
from retention.rules.replay.columns import is_independent, outcome_of
from retention.rules.replay.fates import FATES, held_at, states_at
from retention.rules.replay.limits import ReplayLimits
from retention.rules.replay.publishes import PUBLISHES, Expectation, Publishes
from retention.rules.replay.replay import replay
from retention.schemas.deadlines import NEVER
from tests.support.laws import law
from tests.support.replay_model import ReplayModel, fates_of

START = 1_000 * SECOND
END = START + 60 * SECOND


def rows_of(*messages: dict[str, Any]) -> Publishes:
    defaults = {"size": 40, "deadline_ns": None, "silent": False, "msg_id": None}
    plain = {"rollup": 0, "early": 0, "late": 0}
    rows = [
        {"seq": number, "ts_ns": START + number * SECOND, **defaults, **plain, **message}
        for number, message in enumerate(messages, start=1)
    ]
    return Publishes(pa.Table.from_pylist(rows, schema=PUBLISHES))


def of_subjects(subjects: str) -> Publishes:
    return rows_of(*({"subject": subject} for subject in subjects))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Publishes, ReplayLimits, int]:
    """Publishes within a minute, often at one instant, with everything that a replay knows except expectations."""
    at_ns, seq, messages = START, draw(st.integers(1, 5)), []
    has_ttls, has_rollups, has_ids, goes_back = (draw(st.booleans()) for _ in range(4))
    for _ in range(draw(st.integers(0, 14))):
        step = draw(st.sampled_from([0, 0, 1, 1, 2, 5] + ([-3] if goes_back else [])))
        at_ns += step * SECOND // 2
        ttl = draw(st.sampled_from([None, None, NEVER, 1, 2, 3, -(10**9)])) if has_ttls else None
        deadline = ttl if ttl in (None, NEVER) else at_ns + ttl * SECOND
        messages.append(
            {
                "seq": seq,
                "subject": draw(st.sampled_from("abc")),
                "ts_ns": at_ns,
                "size": draw(st.sampled_from([31, 40, 60, 130])),
                "deadline_ns": deadline,
                "silent": draw(st.sampled_from([False, False, False, True])),
                "msg_id": draw(st.sampled_from([None, "x", "y"])) if has_ids else None,
                "rollup": draw(st.sampled_from([0, 0, 0, 1, 2])) if has_rollups else 0,
                "early": draw(st.sampled_from([0] * 9 + [10054])),
                "late": draw(st.sampled_from([0] * 9 + [10165])),
            }
        )
        seq += draw(st.sampled_from([1, 1, 1, 2]))
    rows = pa.Table.from_pylist(messages, schema=PUBLISHES)
    return Publishes(rows), draw(limits()), draw(st.sampled_from([END, at_ns, at_ns - SECOND]))


@st.composite
def limits(draw: st.DrawFn) -> ReplayLimits:
    def some(*values: int) -> int | None:
        return draw(st.sampled_from([None, *values]))

    per_subject, marker_ttl = some(1, 2), some(1, 3)
    return ReplayLimits(
        max_msgs=some(1, 2, 4),
        max_bytes=some(80, 150, 300),
        max_msgs_per_subject=per_subject,
        max_age_ns=(age := some(1, 2, 4)) and age * SECOND,
        refuses_new=(refuses := draw(st.booleans())),
        refuses_per_subject=refuses and per_subject is not None and draw(st.booleans()),
        expires=marker_ttl is not None or draw(st.booleans()),
        marker_ttl_ns=marker_ttl and marker_ttl * SECOND,
        marker_bytes=50,
        refuses_markers=draw(st.sampled_from([False, False, False, True])),
        duplicate_window_ns=(some(1, 3) or 0) * SECOND,
    )


@law
@given(worlds())
def test_every_fate_is_the_models(world: tuple[Publishes, ReplayLimits, int]) -> None:
    publishes, limited, until_ns = world
    model = ReplayModel(limited, publishes.rows.to_pylist())
    model.run(until_ns)
    fates = replay(publishes, limited, until_ns)
    assert fates_of(fates) == sorted(model.fates, key=str)
    assert fates.schema == FATES


@law
@given(worlds())
def test_columns_and_events_agree_on_everything(
    world: tuple[Publishes, ReplayLimits, int],
) -> None:
    publishes, limited, _ = world
    if is_independent(publishes, limited):
        by_columns = outcome_of(publishes, limited, END).table(publishes)
        assert by_columns == Broker(publishes, limited).run(END).table(publishes)


@law
@given(worlds(), st.integers(0, 40))
def test_a_later_end_changes_no_earlier_state(
    world: tuple[Publishes, ReplayLimits, int], half_seconds: int
) -> None:
    publishes, limited, _ = world
    at_ns = START + half_seconds * SECOND // 2
    early, late = (replay(publishes, limited, until_ns) for until_ns in (at_ns, END))
    assert states_at(early, [at_ns], 1) == states_at(late, [at_ns], 1)
    names = ["server_seq", "subject", "ts_ns", "size", "stored_ns"]
    assert held_at(early, at_ns).select(names) == held_at(late, at_ns).select(names)


@law
@given(worlds(), st.integers(0, 20))
def test_what_a_server_held_is_enough_to_go_on(
    world: tuple[Publishes, ReplayLimits, int], half_seconds: int
) -> None:
    """Without the memory of ids, markers, and a clock that removed messages had set, nothing else is its state."""
    publishes, limited, _ = world
    limited = replace(limited, marker_ttl_ns=None, duplicate_window_ns=0)
    times = publishes.rows["ts_ns"].to_numpy()
    at_ns = START + half_seconds * SECOND // 2
    if (np.diff(times) < 0).any():
        return
    whole = replay(publishes, limited, END)
    left = pa.concat_arrays(
        [
            held_at(whole, at_ns)["seq"].combine_chunks(),
            publishes.rows["seq"]
            .filter(pc.greater(publishes.rows["ts_ns"], at_ns))
            .combine_chunks(),
        ]
    )
    rest = publishes.rows.filter(pc.is_in(publishes.rows["seq"], value_set=left))
    again = replay(Publishes(rest), limited, END)
    for later_ns in range(at_ns, END, SECOND // 2):
        assert held_at(whole, later_ns)["seq"] == held_at(again, later_ns)["seq"]


def kept(publishes: Publishes, limited: ReplayLimits) -> list[int | None]:
    return held_at(replay(publishes, limited, END), END)["seq"].to_pylist()


def test_limits_act_at_each_publish() -> None:
    both = ReplayLimits(max_msgs=2, max_msgs_per_subject=1)
    assert kept(of_subjects("abbb"), both) == [1, 4]


@pytest.mark.parametrize("events", [False, True])
def test_a_message_names_the_one_that_removed_it(events: bool) -> None:
    publishes, limited = of_subjects("aba"), ReplayLimits(max_msgs_per_subject=1)
    outcome = Broker(publishes, limited).run(END) if events else outcome_of(publishes, limited, END)
    [first, *_] = outcome.table(publishes).to_pylist()
    assert (first["fate"], first["reason"], first["by_server_seq"]) == (
        "removed",
        "max_msgs_per_subject",
        3,
    )
    assert first["removed_ns"] == START + 3 * SECOND


def test_a_marker_takes_a_sequence_and_shifts_later_ones() -> None:
    limited = ReplayLimits(
        max_age_ns=2 * SECOND, expires=True, marker_ttl_ns=60 * SECOND, marker_bytes=50
    )
    fates = replay(of_subjects("abbb"), limited, START + 4 * SECOND)
    assert fates["seq"].to_pylist() == [1, 2, None, 3, 4]
    assert fates["server_seq"].to_pylist() == [1, 2, 3, 4, 5]
    marker = fates.to_pylist()[2]
    assert (marker["subject"], marker["ts_ns"]) == ("a", START + 3 * SECOND)


def test_what_is_not_stored_takes_no_sequence() -> None:
    publishes = rows_of(
        {"subject": "a", "msg_id": "x"},
        {"subject": "a", "msg_id": "x"},
        {"subject": "b", "early": 10054},
        {"subject": "b"},
    )
    fates = replay(publishes, ReplayLimits(duplicate_window_ns=SECOND * 5), END)
    assert fates["server_seq"].to_pylist() == [1, None, None, 2]
    assert fates["fate"].to_pylist() == ["kept", "duplicate", "refused", "kept"]
    assert fates["by_server_seq"].to_pylist() == [None, 1, None, None]


def test_a_refused_marker_is_tried_again_when_there_is_room() -> None:
    """A year of waiting is no year of tries."""
    year = 365 * 24 * 3_600 * SECOND
    last = {"subject": "c", "rollup": 2, "ts_ns": START + year, "size": 10}
    publishes = rows_of({"subject": "a", "size": 60, "deadline_ns": START + 3 * SECOND}, last)
    limited = ReplayLimits(
        max_bytes=70, refuses_new=True, expires=True, marker_ttl_ns=SECOND, marker_bytes=50
    )
    first, rolled = replay(publishes, limited, START + 2 * year).to_pylist()
    assert (first["reason"], first["removed_ns"]) == ("rollup", START + year)
    assert rolled["fate"] == "kept"


@pytest.mark.parametrize(
    ("expectation", "code"),
    [
        (Expectation(last_seq=b"2"), 0),
        (Expectation(last_seq=b"9"), 10071),
        (Expectation(subject_seq=b"1"), 10071),
        (Expectation(subject_seq=b"2"), 0),
        (Expectation(subject_seq=b"02", subject="*"), 0),
        (Expectation(subject_seq=b"2", subject="none"), 10071),
        (Expectation(subject="a"), 10193),
        (Expectation(last_id=b"y"), 0),
        (Expectation(last_id=b"x"), 10070),
    ],
)
def test_expectations_meet_the_replayed_state(expectation: Expectation, code: int) -> None:
    messages = ({"subject": "a", "msg_id": "x"}, {"subject": "a", "msg_id": "y"}, {"subject": "a"})
    publishes = Publishes(rows_of(*messages).rows, {3: expectation})
    last = replay(publishes, ReplayLimits(max_msgs_per_subject=1), END).to_pylist()[-1]
    assert (last["code"] or 0) == code


def test_states_are_those_of_a_stream_info() -> None:
    fates = replay(of_subjects("abbb"), ReplayLimits(max_age_ns=SECOND), END)
    before, second, end = states_at(fates, [START, START + 2 * SECOND, END], 1)
    assert (before.messages, before.first_seq, before.last_seq) == (0, 1, 0)
    assert (second.messages, second.bytes, second.first_seq, second.subjects) == (1, 40, 2, 1)
    assert (end.messages, end.first_seq, end.last_seq) == (0, 5, 4)


def waiting(**limited: Any) -> list[dict[str, Any]]:
    """Fates of z, silent, and of two messages of a: each of these expires as the last of its subject."""
    publishes = rows_of(
        {"subject": "z", "ts_ns": START, "deadline_ns": START + 10 * SECOND, "silent": True},
        {"subject": "a", "size": 20, "ts_ns": START, "deadline_ns": START + 2 * SECOND},
        {
            "subject": "a",
            "size": 20,
            "ts_ns": START + 3 * SECOND,
            "deadline_ns": START + 7 * SECOND // 2,
        },
    )
    markers = ReplayLimits(expires=True, marker_ttl_ns=60 * SECOND, marker_bytes=50)
    return replay(publishes, replace(markers, **limited), END).to_pylist()


def test_messages_wait_together_as_the_last_of_their_subject() -> None:
    _, *both = waiting(refuses_markers=True)
    assert [fate["fate"] for fate in both] == ["kept", "kept"]


def test_a_marker_rolls_up_the_others_that_wait() -> None:
    """The second message of a, refused half a second after an even one, has the next turn after z is removed."""
    _, first, second, marker = waiting(max_bytes=100, refuses_new=True)
    assert (first["reason"], second["reason"], marker["fate"]) == ("rollup", "msg_ttl", "kept")
    instants = {first["removed_ns"], second["removed_ns"], marker["stored_ns"]}
    assert instants == {START + 23 * SECOND // 2}
    assert first["by_server_seq"] == second["by_server_seq"] == marker["server_seq"] == 4
