"""Rules of a JetStream pass in the server's order (NATS STREAM.UPDATE; docs/semantics/limits.md), plus our own."""

from __future__ import annotations

from retention.core.policy import Policy
from retention.core.spans import Spans
from retention.rules.fold import Evaluation, fold
from retention.rules.jetstream.delete_retention import DeleteRetention
from retention.rules.jetstream.max_age import MaxAge
from retention.rules.jetstream.max_age_each import MaxAgeEach
from retention.rules.jetstream.max_bytes import MaxBytes
from retention.rules.jetstream.max_msgs import MaxMsgs
from retention.rules.jetstream.max_msgs_per_subject import MaxMsgsPerSubject
from retention.rules.jetstream.max_subjects import MaxSubjects
from retention.rules.jetstream.msg_ttl import MsgTtl
from retention.rules.rule import NO_FACTS, Rule, SubjectFacts, SubjectSource, TimedRule

ORDER: tuple[type[Rule], ...] = (
    MaxMsgs,
    MaxBytes,
    MaxMsgsPerSubject,
    MaxSubjects,
    DeleteRetention,
    MaxAge,
    MaxAgeEach,
    MsgTtl,
)
"""A rule applies to the messages left by the rules before it; a message counts for the first rule that removes it."""


def rules_of(policy: Policy, as_of_ns: int, subjects: SubjectFacts = NO_FACTS) -> tuple[Rule, ...]:
    """The rules by which a policy removes messages, in the order of a pass; parameters as in `evaluate`."""
    made = (rule.of(policy, as_of_ns, subjects) for rule in ORDER)
    return tuple(rule for rule in made if rule is not None)


def find_subjects(policy: Policy, as_of_ns: int, source: SubjectSource) -> SubjectFacts:
    """Find the facts about subjects that a policy's rules need at an instant.

    Raises:
        DamagedError: a file that had to be read is damaged.
    """
    subjects = NO_FACTS
    for rule in ORDER:
        subjects = rule.find_subjects(policy, as_of_ns, source, subjects)
    return subjects


def evaluate(
    spans: Spans, policy: Policy, as_of_ns: int, subjects: SubjectFacts = NO_FACTS
) -> Evaluation:
    """Decide a pass from statistics where possible.

    Args:
        spans: the stream.
        policy: the limits.
        as_of_ns: the pass's one instant.
        subjects: the known facts about subjects that the policy's rules use.
    """
    return fold(spans, rules_of(policy, as_of_ns, subjects), subjects)


def expires(policy: Policy) -> bool:
    """Whether time alone removes messages."""
    return any(isinstance(rule, TimedRule) for rule in rules_of(policy, 0))


def reaches_all(policy: Policy) -> bool:
    """Whether a rule can remove messages anywhere, so that no prefix of the stream decides a pass."""
    return any(rule.reaches_all(policy) for rule in ORDER)
