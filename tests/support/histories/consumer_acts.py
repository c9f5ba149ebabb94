"""Acts of a stream's consumers, and acts on them."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.batch_model import PullConsumer
from tests.support.histories.actors import Actors
from tests.support.histories.stored import SECOND
from tests.support.histories.stream_model import Subscriber

FILTERS = ((), ("s.*",), ("s.a",), ("s.b", "s.c"))
"""Filters of consumers that may coexist on an `interest` stream."""
APART = {"w-ab": ("s.a", "s.b"), "w-c": ("s.c",)}
"""Consumers of a work queue, with disjoint filters."""


def subscribe(actors: Actors, rng: Random) -> None:
    """Create a consumer, or delete one."""
    model, retention = actors.model, actors.terms["retention"]
    if retention == "limits" or not actors.has_table:
        actors.said = "subscribe: nobody"
        return
    queue = retention == "workqueue"
    name = rng.choice(sorted(APART)) if queue else f"c{rng.randrange(3)}"
    if name in model.subscribers:
        if rng.random() < 0.5:
            actors.said = f"unsubscribe {name}"
            actors.stream.consumers.remove(name)
            del model.subscribers[name]
        return
    filters = APART[name] if queue else rng.choice(FILTERS)
    policy = "explicit" if queue else rng.choice(["explicit", "explicit", "all", "none"])
    new = not queue and rng.random() < 0.3
    waits = rng.choice([5, 30])
    config: dict[str, Any] = {
        "durable_name": name,
        "ack_policy": policy,
        "deliver_policy": "new" if new else "all",
        "max_ack_pending": 1000 if policy != "none" else 0,
    }
    if policy != "none":
        config["ack_wait"] = waits * SECOND
    if filters:
        config["filter_subjects"] = list(filters)
    actors.said = f"subscribe {config}"
    actors.stream.consumers.add(config)
    start = model.next_seq if new else min(model.live, default=model.next_seq)
    worker = PullConsumer(policy, start, waits=(waits * SECOND,))
    model.subscribers[name] = Subscriber(() if filters == ("s.*",) else filters, worker)


def work(actors: Actors, rng: Random) -> None:
    """Fetch with a consumer, and answer its messages."""
    model = actors.model
    if not model.subscribers:
        subscribe(actors, rng)
        return
    name = rng.choice(sorted(model.subscribers))
    one, now_ns = model.subscribers[name], actors.clock()
    one.worker.stream = [m.seq for m in model.messages if one.wants(m.subject)]
    count = rng.choice([1, 3, 10])
    given = one.worker.fetch(count, now_ns)
    client = actors.stream.consumer(name)
    messages = client.fetch(count)
    actors.said = f"{name} fetches {count}: {given}"
    assert [
        (row["seq"], row["consumer_seq"], row["deliveries"]) for row in messages.table.to_pylist()
    ] == given
    acks = [(seq, own) for seq, own, _ in given if rng.random() < 0.7]
    if one.worker.policy == "none" or not acks:
        return
    actors.said += f", acks {[seq for seq, _ in acks]}"
    client.ack(messages.filter([seq in dict(acks) for seq, _, _ in given]))
    for seq, own in acks:
        one.worker.ack(seq, own)
