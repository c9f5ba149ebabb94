"""Planning a stream: look at what exists, decide what metadata can, probe the rest; nothing is written but caches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.engines.choice import Engines
from retention.opened import OpenedStream
from retention.passes.guards import refuse_unbuilt
from retention.passes.plan import Plan, empty_plan
from retention.passes.probe import Probe, answer
from retention.passes.verdicts import make_plan
from retention.policy import Policy
from retention.rules.judge import Answer
from retention.rules.needless import unread
from retention.rules.one_pass import OnePass, one_pass
from retention.rules.spans import spans_of
from retention.segments import Inventory


@dataclass(frozen=True)
class Look:
    """Everything that a plan was made from."""

    inventory: Inventory
    decided: OnePass
    answers: list[Answer]
    plan: Plan


def plan_stream(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass.

    Raises:
        RefusedError: the stream's configuration or its table needs what this version cannot do.
        DamagedError: a file that had to be read is damaged.
    """
    if not opened.store.exists():
        policy = opened.config.policy()
        refuse_unbuilt(opened.name, policy)
        return empty_plan(opened.name, as_of_ns, policy)
    return look(opened, as_of_ns, engines, every_row=False).plan


def look(opened: OpenedStream, as_of_ns: int, engines: Engines, *, every_row: bool = True) -> Look:
    """Plan one pass over a stream that exists, and keep what the plan was made from.

    Args:
        opened: the stream.
        as_of_ns: the pass's one instant.
        engines: where rows are read.
        every_row: also read rows that change nothing because their segment stays whole: explaining needs them.

    Raises:
        RefusedError, DamagedError: as `plan_stream`.
    """
    policy = opened.config.policy()
    refuse_unbuilt(opened.name, policy)
    inventory = opened.store.inventory(opened.store.snapshot())
    decided = decide(opened, inventory, policy, as_of_ns)
    known = unread(decided) if policy.whole_segments and not every_row else []
    asked = np.setdiff1d(np.flatnonzero(decided.ask), [answer.span for answer in known])
    probes = [_probe(opened, inventory, decided, int(span)) for span in asked]
    lengths = inventory.files["file_bytes"].to_numpy()
    weights = [int(lengths[list(probe.numbers)].sum()) for probe in probes]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    answers = known + engine.map(answer, probes, weights)
    plan = make_plan(inventory, policy, as_of_ns, decided, answers)
    return Look(inventory, decided, answers, plan)


def decide(opened: OpenedStream, inventory: Inventory, policy: Policy, as_of_ns: int) -> OnePass:
    """Decide a pass as far as metadata goes; subject digests are read only if the policy limits subjects."""
    per_subject = policy.max_msgs_per_subject is not None
    counts = opened.store.subject_counts(inventory.files) if per_subject else None
    return one_pass(spans_of(inventory.files), policy, as_of_ns, counts)


def _probe(opened: OpenedStream, inventory: Inventory, decided: OnePass, span: int) -> Probe:
    first, end = (int(number) for number in decided.spans.first_file[span : span + 2])
    found = opened.store.data_files(inventory.files.slice(first, end - first))
    return Probe(decided.question(span), tuple(found), tuple(range(first, end)))
