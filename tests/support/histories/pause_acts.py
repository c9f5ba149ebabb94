"""Act of a pause: removals are refused, other commands go on, and a resumption allows removals again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from retention.errors import RefusedError
from tests.support.histories.actors import Actors, done, refused
from tests.support.histories.terms import NAME


def pause(actors: Actors, rng: Random) -> None:
    """Pause the stream or the warehouse, try to remove, look, and resume."""
    if not actors.has_table:
        actors.said = "pause: no table"
        return
    scope = rng.choice([None, [NAME]])
    actors.warehouse.pause(scope, reason="migration")
    before = len(actors.stream.history())
    name = rng.choice(sorted(_REMOVALS))
    actors.said = f"pause {scope or 'all'}, try to {name}"
    with refused((RefusedError,), ["paused"]):
        _REMOVALS[name](actors)
    assert actors.stream.state().paused is not None
    assert len(actors.stream.history()) == before
    if rng.random() < 0.5:
        actors.said += ", compact"
        done(actors.warehouse.compact([NAME]).apply())
    assert len(actors.warehouse.resume(scope, reason="migrated")) == 1
    assert actors.stream.state().paused is None


def _delete(actors: Actors) -> Any:
    live = sorted(actors.model.live)
    # Planning refuses to delete what is missing before a run could ask for permission.
    return actors.stream.delete(live[0]).apply() if live else _retain(actors)


def _retain(actors: Actors) -> Any:
    return done(actors.warehouse.apply([NAME]))


_REMOVALS: dict[str, Callable[[Actors], Any]] = {
    "retain": _retain,
    "purge": lambda actors: actors.stream.purge().apply(),
    "delete": _delete,
    "reclaim": lambda actors: done(actors.warehouse.reclaim([NAME]).apply()),
}
"""What a pause refuses."""
