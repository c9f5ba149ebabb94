"""Acts with legal holds: placed, written in the configuration, released, and placed by an undo."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.histories.actors import Actors, refused
from tests.support.histories.hold_model import Held
from tests.support.histories.stored import SECOND
from tests.support.histories.stream_model import UNSURE
from tests.support.histories.terms import NAME, SUBJECTS
from tests.support.histories.why_not import WHY_NOT, undone

MOST = 3
"""Legal holds in effect at the same time; more would leave nothing to remove."""


def takes_holds(actors: Actors) -> bool:
    """Whether a history has legal holds: the model of delete markers does not know them."""
    return "subject_delete_marker_ttl" not in actors.terms and actors.has_table


def hold(actors: Actors, rng: Random) -> None:
    """Place a legal hold."""
    model = actors.model
    if not takes_holds(actors) or len(model.holds.in_effect) >= MOST:
        actors.said = "hold: none"
        return
    fields = _fields(rng, model.next_seq, actors.clock())
    actors.said = f"hold {fields}"
    placed = actors.warehouse.hold(NAME, reason="case 41", **fields)
    model.holds.in_effect[placed.id] = Held(
        placed.id,
        fields.get("subject"),
        fields.get("ranges"),
        fields.get("from_time"),
        fields.get("to_time"),
        fields.get("until"),
    )


def _fields(rng: Random, next_seq: int, now_ns: int) -> dict[str, Any]:
    """The fields of a legal hold that covers a part of the stream, present or future."""
    fields: dict[str, Any] = {}
    kind = rng.choice(["subject", "ranges", "ranges", "times", "both"])
    if kind in ("subject", "both"):
        fields["subject"] = rng.choice([*SUBJECTS, "s.*"])
    if kind in ("ranges", "both"):
        firsts = [rng.randint(1, next_seq + 5) for _ in range(rng.choice([1, 2, 3]))]
        fields["ranges"] = tuple((first, first + rng.choice([0, 1, 4])) for first in firsts)
    if kind == "times":
        begin = now_ns - rng.choice([-3, 0, 5, 30]) * SECOND
        fields |= {"from_time": begin, "to_time": begin + rng.choice([1, 4, 20]) * SECOND}
    if rng.random() < 0.4:
        fields["until"] = now_ns + rng.choice([1, 5, 30, 600]) * SECOND
    return fields


def release(actors: Actors, rng: Random) -> None:
    """Release a legal hold on record."""
    holds = actors.model.holds
    on_record = [each.id for each in actors.warehouse.holds([NAME]) if each.line != "pending"]
    assert set(on_record) <= set(holds.in_effect), (on_record, holds)
    if not on_record:
        actors.said = "release: none"
        return
    hold_id = rng.choice(sorted(on_record))
    actors.said = f"release {hold_id}"
    actors.warehouse.release_hold(hold_id, reason="closed")
    holds.end(hold_id)


def configure(actors: Actors, rng: Random) -> None:
    """Write a legal hold into the configuration, or delete the line of one on record, which releases nothing."""
    holds = actors.model.holds
    if not takes_holds(actors):
        actors.said = "configure: none"
        return
    if actors.terms.get("holds"):
        pending = any(each.line == "pending" for each in actors.warehouse.holds([NAME]))
        actors.said = f"configure: {'a pending line' if pending else 'without the line'}"
        if not pending:
            actors.edit({name: value for name, value in actors.terms.items() if name != "holds"})
        return
    first = rng.randint(1, actors.model.next_seq)
    last = first + rng.choice([0, 3])
    line = {"reason": "case 42", "from_seq": first, "to_seq": last}
    actors.said = f"configure {line}"
    actors.edit(actors.terms | {"holds": [line]})
    [written] = actors.config.written_holds
    if written.id not in holds.ended:
        holds.in_effect[written.id] = Held(written.id, None, ((first, last),))


def undo_held(actors: Actors, rng: Random) -> None:
    """Undo a run, and hold what it brings back."""
    model = actors.model
    runs = [run for run in model.runs if not run.markers and run.kind != "drop"]
    if not takes_holds(actors) or not runs or len(model.holds.in_effect) > MOST:
        actors.said = "undo --hold: no run"
        return
    run = rng.choice(runs[-4:])
    why_not = model.why_not_undo(run)
    actors.said = f"undo --hold {run.name} ({run.kind}; {why_not or len(run.removed)})"
    if why_not not in (None, UNSURE):
        with refused(*WHY_NOT[why_not or ""]):
            actors.warehouse.undo(run.name, hold="case 43")
        return
    before = {each.id for each in actors.warehouse.holds([NAME])}
    if undone(actors, run, "case 43") is None:
        return
    placed = [each.id for each in actors.warehouse.holds([NAME]) if each.id not in before]
    assert len(placed) == 1, placed
    ranges = tuple((seq, seq) for seq in sorted(run.removed))
    model.holds.in_effect[placed[0]] = Held(placed[0], None, ranges)
