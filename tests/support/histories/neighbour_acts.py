"""Act of a second stream in the same warehouse, which no act on the first one may change."""

from __future__ import annotations

import json
from random import Random

from tests.support.histories.actors import Actors, done
from tests.support.histories.stored import SECOND
from tests.support.histories.terms import NEIGHBOUR


def neighbour(actors: Actors, rng: Random) -> None:
    """Publish to the second stream, or remove from it; compare all that it has with the model."""
    model, stream = actors.beside, actors.warehouse.new_stream(NEIGHBOUR)
    kind = rng.choice(["publish", "publish", "delete", "erase", "retain", "reclaim"])
    actors.said = f"neighbour: {kind}"
    if kind == "publish" or not model:
        payload = f"beside-{actors.last_beside}-{rng.getrandbits(64):016x}"
        line = {"subject": f"o.{rng.randrange(3)}", "data": payload, "ts_ns": actors.clock()}
        [ack] = stream.publish([json.dumps(line).encode()]).acks()
        assert ack.seq == actors.last_beside + 1
        actors.last_beside = ack.seq
        model[ack.seq] = payload
    elif kind == "delete":
        seq = rng.choice(sorted(model))
        assert stream.delete(seq).apply().removed_messages == 1
        del model[seq]
    elif kind == "erase":
        seq = rng.choice(sorted(model))
        assert stream.erase(seqs=[seq], reason="request 8").apply().is_done
        del model[seq]
    elif kind == "retain":
        report = done(actors.warehouse.apply([NEIGHBOUR]))
        assert report.removed_messages == max(0, len(model) - MOST)
        for seq in sorted(model)[:-MOST]:
            del model[seq]
    else:
        actors.clock.advance(SECOND)
        done(actors.warehouse.reclaim([NEIGHBOUR]).apply())
    check_neighbour(actors)


MOST = 5
"""The limit of its messages."""


def check_neighbour(actors: Actors) -> None:
    """Check that the second stream has its own messages, and nothing else."""
    stream = actors.warehouse.new_stream(NEIGHBOUR)
    if not stream.opened.store.exists():
        assert not actors.beside
        return
    rows = [row for table in stream.messages() for row in table.to_pylist()]
    assert {row["seq"]: row["payload"].decode() for row in rows} == actors.beside
    assert stream.verify().damages == ()
