"""Laws on real stores: messages held for consumers equal those of the model, in every answer."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import ConsumerProtection, Policy
from retention.planners.estimate import estimate
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerTable
from tests.contract.test_laws import (
    PER_BYTE,
    check_bounds,
    given_back,
    laid,
    limits_of,
    real,
    scaled,
    seqs,
)
from tests.support import holds
from tests.support.interests import interests_of, record_of
from tests.support.laws import law_on_disk
from tests.support.laying import SECOND, START, File, lay, warehouse_with
from tests.support.worlds import World, instants, policies, worlds

pytestmark = pytest.mark.slow


def check_held(
    folder: Path,
    format_: str,
    world: World,
    policy: Policy,
    as_of_ns: int,
    interests: Sequence[Interest],
) -> None:
    rule = policy.hold or ConsumerProtection()
    held = {
        "consumers": "all" if rule.consumers is None else list(rule.consumers),
        "max_age": rule.max_age_ns,
        "max_bytes": rule.max_bytes,
    }
    limits = limits_of(policy) | {"hold_for_consumers": held}
    warehouse = warehouse_with(folder, format_, as_of_ns, **limits)
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, [File(base, [laid(m) for m in part]) for base, part in world.files])
    for one in interests:
        ConsumerTable(stream.opened.root).update(one.consumer, partial(given_back, record_of(one)))
    stored = World(
        tuple((base, tuple(real(m) for m in part)) for base, part in world.files), world.open_base
    )
    expected = holds.spared(stored, policy, as_of_ns, rule, interests)
    lag = stream.state().lag
    explained = {seq: stream.explain(seq) for seq in seqs(warehouse)}
    plan, bounds = stream.plan().plan, estimate(stream.opened, as_of_ns)
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence

    assert {seq: one.rule for seq, one in explained.items() if one.goes} == expected.gone
    assert plan.by_rule == outcome.value.by_rule == Counter(expected.gone.values())
    assert plan.held is not None
    assert plan.held.messages == len(expected.held)
    check_bounds(bounds, plan)
    assert lag is not None
    assert lag.messages <= plan.removed_messages
    left = seqs(warehouse) if stream.state().messages else set()
    assert left == set(explained) - set(expected.gone)
    assert stream.plan().plan.is_empty


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@law_on_disk
@given(
    data=st.data(),
    world=worlds.filter(lambda world: len(world.files) > 0),
    # Deadlines of these worlds are arbitrary numbers, not derivable from headers.
    policy=policies.map(
        lambda policy: replace(
            scaled(policy), max_subjects=None, delete_retention_ns=None, allow_msg_ttl=False
        )
    ),
    instant=instants,
    rule=holds.rules.filter(lambda rule: rule.max_age_ns or rule.max_bytes),
)
def test_what_is_held_is_left_and_explained(
    format_: str,
    data: st.DataObject,
    world: World,
    policy: Policy,
    instant: int,
    rule: ConsumerProtection,
) -> None:
    rule = replace(
        rule,
        max_age_ns=rule.max_age_ns and rule.max_age_ns * SECOND,
        max_bytes=rule.max_bytes and rule.max_bytes * PER_BYTE,
    )
    with tempfile.TemporaryDirectory() as folder:
        as_of_ns = START + instant * SECOND
        interests = data.draw(interests_of(world))
        held = replace(policy, hold=rule)
        check_held(Path(folder), format_, world, held, as_of_ns, interests)
