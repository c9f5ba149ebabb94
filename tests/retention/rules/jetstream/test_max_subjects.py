from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.rules import MAX_SUBJECTS, digest_batches, extra_subjects
from tests.support.laws import law
from tests.support.rule_cases import Case, check
from tests.support.worlds import World, instants, plan_of, policies, removed_by, update, worlds

ONE, TWO = Policy(max_subjects=1), Policy(max_subjects=2)
GOES = MAX_SUBJECTS
CASES = {
    "as many subjects as the limit are kept": Case(TWO, "a b a b", "- - - -"),
    "the subject with the lowest last sequence is removed whole": Case(
        TWO, "a b a c b", f"{GOES} - {GOES} - -"
    ),
    "the first message of a subject does not count": Case(ONE, "a b a", f"- {GOES} -"),
    "newer is a higher sequence, not a later time": Case(ONE, "a@90 b@10", f"{GOES} -"),
    "a deletion is a message": Case(ONE, "a b#", f"{GOES} -"),
    "a TTL of never protects nothing": Case(ONE, "a! b", f"{GOES} -"),
    "it applies with discard new": Case(
        replace(ONE, max_msgs=1, discard="new"), "a b", f"{GOES} -"
    ),
    "messages of a head trim belong to the trim": Case(
        replace(ONE, max_msgs=2), "a a b", f"max_msgs {GOES} -"
    ),
    "messages beyond the limit per subject belong to that limit": Case(
        replace(TWO, max_msgs_per_subject=1),
        "a a b b c",
        f"max_msgs_per_subject {GOES} max_msgs_per_subject - -",
    ),
    "a deleted subject beyond the limit belongs to the limit": Case(
        replace(ONE, delete_retention_ns=10), "a a#@5 b", f"{GOES} {GOES} -"
    ),
    "a deleted subject within the limit is removed by its age": Case(
        replace(TWO, delete_retention_ns=10),
        "a b b#@5 c",
        f"{GOES} delete_retention delete_retention -",
    ),
    "age removes messages of the kept subjects": Case(
        replace(ONE, max_age_ns=50), "a@1 b@1 b@90", f"{GOES} max_age -"
    ),
    "the age scan does not see removed subjects": Case(
        replace(ONE, max_age_ns=50), "a@90 b@1 b@90", f"{GOES} max_age -"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_subjects_with_the_newest_last_messages_are_kept(case: Case) -> None:
    check(case)


@law
@given(world=worlds, policy=policies, limit=st.integers(1, 3), as_of_ns=instants)
def test_digests_are_read_a_file_at_a_time_with_the_same_result(
    world: World, policy: Policy, limit: int, as_of_ns: int
) -> None:
    policy = replace(policy, max_subjects=limit)
    with (
        patch.object(extra_subjects, "_FILES_AT_A_TIME", 1),
        patch.object(digest_batches, "_LEAST_ROWS", 1),
    ):
        plan = plan_of(world, policy, as_of_ns)
    assert set(removed_by(world, plan)) == set(update(world.messages, policy, as_of_ns))
