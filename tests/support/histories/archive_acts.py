"""Acts on a stream's archive: messages restored from it, and its oldest copies deleted by a reclaim."""

from __future__ import annotations

import json
from itertools import takewhile
from random import Random

from retention.errors import RefusedError, UsageError
from tests.support.histories.actors import Actors, refused


def restore(actors: Actors, rng: Random) -> None:
    """Restore from the archive all removed messages that are missing."""
    del rng
    model = actors.model
    if "archive" not in actors.terms:
        actors.said = "restore: no archive"
        return
    if not model.archived:
        actors.said = "restore: nothing in the archive"
        with refused((UsageError,)):
            actors.stream.restore()
        return
    if actors.stream.state().erasures:
        actors.said = "restore: an erasure is unfinished"
        with refused((RefusedError,), ["erasure"]):
            actors.stream.restore()
        return
    back = model.archived.keys() - model.live.keys()
    actors.said = f"restore {sorted(back)}"
    report = actors.stream.restore()
    # Copies also contain messages kept in their files, and these are counted.
    assert report.messages == len(back)
    assert report.already >= len(model.archived) - len(back)
    model.restore()


def forget(actors: Actors) -> None:
    """Forget the copies that a reclaim has just deleted after `archive_keep`; it may delete no other ones."""
    model = actors.model
    old = [*takewhile(lambda one: one.as_of_ns < _cutoff_ns(actors), model.archives)]
    kept, deleted = _manifests(actors)
    before = model.forgotten_archives
    gone, model.archives = model.archives[: deleted - before], model.archives[deleted - before :]
    model.forgotten_archives = deleted
    assert kept == len(model.archives), (kept, len(model.archives))
    assert len(gone) <= len(old), "copies are gone before their time"
    # A file of a removed message may have others, which a legal hold covers.
    assert model.holds.in_effect or len(gone) == len(old), "old copies are kept"
    held = [
        seq for one in gone for seq, message in one.removed.items() if model.holds.cover(message)
    ]
    assert held == [], "copies of held messages are gone"
    left = {seq for one in model.archives for seq in one.removed}
    model.archived = {seq: value for seq, value in model.archived.items() if seq in left}


def _cutoff_ns(actors: Actors) -> int:
    return actors.clock() - actors.config.archive_keep


def _manifests(actors: Actors) -> tuple[int, int]:
    """The number of manifests in the archive, and of those that reclaims have deleted."""
    places = [*(actors.folder / "archive").glob("*/*")]
    assert len(places) <= 1, places
    manifests = (one.name for place in places for one in place.glob("manifests/*.json"))
    kept = sum(1 for name in manifests if not name.startswith("erasure-"))
    records = [place / "forgotten.json" for place in places]
    deleted = [json.loads(one.read_bytes())["manifests"] for one in records if one.exists()]
    return kept, sum(deleted)
