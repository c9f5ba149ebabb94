from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.core.spans import spans_of
from retention.rules import DELETE_RETENTION
from retention.rules.deleted_subjects import deleted_subjects_of
from retention.rules.jetstream.delete_retention import DeleteRetention
from retention.rules.jetstream.evaluate import evaluate
from retention.rules.rule import SubjectFacts
from retention.schemas.deadlines import NEVER
from retention.schemas.files import DELETIONS
from tests.support.laws import law
from tests.support.rule_cases import NOW, Case, check
from tests.support.worlds import (
    Message,
    World,
    decide,
    digests,
    instants,
    plan_of,
    policies,
    removed_by,
    worlds,
)

TEN = Policy(delete_retention_ns=10)
GOES = DELETE_RETENTION
CASES = {
    "a subject goes whole with its deletion": Case(TEN, "a b a#@80 b", f"{GOES} - {GOES} -"),
    "at exactly that age it goes": Case(TEN, "a@1 a#@90", f"{GOES} {GOES}"),
    "a nanosecond younger it stays": Case(TEN, "a@1 a#@91", "- -"),
    "a deletion of the future stays": Case(TEN, "a@1 a#@200", "- -"),
    "a deletion that a newer value has buried is a message like others": Case(
        TEN, "a#@1 a@2", "- -"
    ),
    "a value that came back is deleted by its last message": Case(
        TEN, "a#@1 a@2 a#@3", f"{GOES} {GOES} {GOES}"
    ),
    "only the last of several deletions counts": Case(TEN, "a#@1 a#@95", "- -"),
    "an older time behind a younger one counts as it is": Case(TEN, "a@99 a#@5", f"{GOES} {GOES}"),
    "never spares nobody": Case(TEN, "a! a#@5!", f"{GOES} {GOES}"),
    "a deletion alone goes": Case(TEN, "b a#@5", f"- {GOES}"),
    "what the limit per subject takes is the limit's": Case(
        replace(TEN, max_msgs_per_subject=1),
        "a a a#@5 b",
        f"max_msgs_per_subject max_msgs_per_subject {GOES} -",
    ),
    "of two that the limit leaves both go": Case(
        replace(TEN, max_msgs_per_subject=2), "a a a#@5", f"max_msgs_per_subject {GOES} {GOES}"
    ),
    "what a head trim takes is the trim's": Case(
        replace(TEN, max_msgs=2), "a b a#@5", f"max_msgs - {GOES}"
    ),
    "a head trim counts subjects that are about to go": Case(
        replace(TEN, max_msgs=2), "b a a#@5", f"max_msgs {GOES} {GOES}"
    ),
    "of a file that goes whole each rule takes its own": Case(
        replace(TEN, max_bytes=7), "a*5 a#@5*5", f"max_bytes {GOES}"
    ),
    "it holds with discard new, too": Case(
        replace(TEN, max_msgs=9, discard="new"), "a a#@5", f"{GOES} {GOES}"
    ),
    "it comes before age": Case(
        replace(TEN, max_age_ns=20), "a@1 a#@2 b@3", f"{GOES} {GOES} max_age"
    ),
    "a young deletion goes by age, when it is old enough for that": Case(
        Policy(delete_retention_ns=50, max_age_ns=20), "a@60 a#@70", "max_age max_age"
    ),
    "a young message that goes with its subject does not end the age scan": Case(
        replace(TEN, max_age_ns=20), "a@99 a#@5 b@3", f"{GOES} {GOES} max_age"
    ),
    "a deletion whose TTL has passed takes its values along, and none comes back": Case(
        replace(TEN, allow_msg_ttl=True), "a a#@5~20", f"{GOES} {GOES}"
    ),
    "a deletion that expiry uncovers stays for the next pass": Case(
        replace(TEN, allow_msg_ttl=True), "a#@5 a@6~20", "- msg_ttl"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_subject_goes_whole_with_an_old_deletion(case: Case) -> None:
    check(case)


@law
@given(worlds, policies, instants, st.integers(1, 12))
def test_no_subject_keeps_a_value_below_the_deletion_that_goes(
    world: World, policy: Policy, as_of: int, retention: int
) -> None:
    plan = plan_of(world, replace(policy, delete_retention_ns=retention), as_of)
    left = world.without(set(removed_by(world, plan)))
    last = {message.subject: message for message in world.messages}
    dead = {m.subject for m in last.values() if m.deletes and m.ts_ns + retention <= as_of}
    assert not dead & {message.subject for message in left.messages}


@law
@given(worlds, policies, instants, st.integers(1, 12))
def test_nothing_else_goes_than_by_the_other_rules(
    world: World, policy: Policy, as_of: int, retention: int
) -> None:
    # The age scan continues after removed young messages.
    policy = replace(policy, max_age_ns=None, delete_retention_ns=None)
    others = set(removed_by(world, plan_of(world, policy, as_of)))
    gone = set(
        removed_by(world, plan_of(world, replace(policy, delete_retention_ns=retention), as_of))
    )
    last = {message.subject: message for message in world.messages}
    spared = {m.seq for m in world.messages if not last[m.subject].deletes}
    assert others <= gone
    assert not (gone - others) & spared


def test_a_stream_without_an_old_message_is_not_looked_into() -> None:
    young = World(((1, (Message(1, "a", NOW - 9, 1, never=False, deletes=True),)),), 1)
    decided = decide(young, TEN, NOW)
    assert decided.subjects.deleted is None
    assert not decided.ask.any()


def test_where_nobody_has_looked_anything_below_may_go() -> None:
    files = tuple((seq, (Message(seq, "a", 80 + seq, 1, never=False),)) for seq in range(1, 21))
    world = World(files, 21)
    spans = spans_of(world.inventory.files)
    [decision] = evaluate(spans, TEN, NOW).decisions
    least, most = decision.bounds()
    # Files 1 to 10 have old enough messages; messages that they delete are in them or in lower files.
    assert least.sum() == 0
    assert most.tolist() == [1] * 10 + [0] * 10
    assert decision.rows.tolist() == [True] * 10 + [False] * 10
    rule = DeleteRetention.of(TEN, NOW, SubjectFacts())
    assert rule is not None
    assert rule.first_due(spans).tolist() == [90 + seq for seq in range(1, 21)]


def test_a_file_in_which_nobody_has_looked_casts_doubt_on_all_below_it() -> None:
    files = tuple(
        (seq, (Message(seq, "a", ts_ns, 1, never=False),))
        for seq, ts_ns in ((1, 95), (2, 96), (3, 5), (4, 97))
    )
    [decision] = evaluate(spans_of(World(files, 4).inventory.files), TEN, NOW).decisions
    assert decision.rows.tolist() == [True, True, True, False]


def test_a_known_deletion_says_when_its_subject_is_due() -> None:
    files = (
        (1, (Message(1, "a", 1, 1, never=False),)),
        (2, (Message(2, "a", 95, 1, never=False, deletes=True),)),
    )
    world = World(files, 3)
    deletions = pa.table([["a"], [2], [95]], schema=DELETIONS)
    deleted = deleted_subjects_of(
        deletions, digests(world, world.inventory.files), None, np.full(2, NEVER)
    )
    rule = DeleteRetention.of(TEN, NOW, SubjectFacts(deleted=deleted))
    assert rule is not None
    assert rule.first_due(spans_of(world.inventory.files)).tolist() == [105, 105]
