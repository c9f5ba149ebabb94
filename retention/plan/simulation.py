"""Simulations: bounds of the messages or rows that policies keep at some instants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from retention.core.bounds import Bounds
from retention.core.json_object import JsonObject
from retention.core.units import parse_as_of
from retention.errors import UsageError
from retention.plan.growth import Growth

Noun = Literal["messages", "rows"]

CONFIGURED = "configured"
"""The name of the policy that a configuration has."""
CHANGED = "changed"
"""The name of the policy that is given without a name."""
SIMULATED_AT = ("now", "now+7d", "now+30d")
"""The instants of passes to simulate unless others are given."""


@dataclass(frozen=True)
class PolicyVariant:
    """A policy to simulate, as changes of the configured one."""

    name: str
    settings: Mapping[str, Any]
    """Key of the configuration → value as a file would have it."""


@dataclass(frozen=True)
class SimulationRequest:
    """Policies to simulate, and when."""

    variants: tuple[PolicyVariant, ...]
    instants: tuple[int, ...]
    """The instants of passes, nanoseconds since the epoch."""
    as_of_ns: int
    """The instant at which growth begins; the cost of a pass is one of a pass then."""
    growth: str = "none"
    """The assumption about what is stored from then on, as `growth_of` reads it."""
    is_exact: bool = False
    """Whether rows are read, so that both bounds of each number are the same."""


@dataclass(frozen=True)
class SimulatedPass:
    """Bounds of the effect of one pass at an instant on everything stored until then.

    No pass has to run before it: the messages that earlier passes remove are among those that it removes.
    """

    at_ns: int
    stored: int
    """The messages or rows that would be stored if nothing was removed."""
    stored_bytes: int
    removed: Bounds
    removed_bytes: Bounds
    by_rule: Mapping[str, Bounds]
    """Rule → the messages or rows that it removes, each counted for the first rule that removes it."""
    alone: Mapping[str, Bounds]
    """Rule → the messages or rows that it would remove as the only rule; empty for a pass that replays."""

    @property
    def kept(self) -> Bounds:
        """The messages or rows after the pass."""
        return _without(self.stored, self.removed)

    @property
    def kept_bytes(self) -> Bounds:
        """Their bytes."""
        return _without(self.stored_bytes, self.removed_bytes)

    def as_json(self, noun: Noun) -> JsonObject:
        """The numbers as JSON values, with names for messages or for rows."""
        return {
            "at_ns": self.at_ns,
            f"stored_{noun}": self.stored,
            "stored_bytes": self.stored_bytes,
            f"removed_{noun}": self.removed.as_json(),
            "removed_bytes": self.removed_bytes.as_json(),
            f"kept_{noun}": self.kept.as_json(),
            "kept_bytes": self.kept_bytes.as_json(),
            "by_rule": {rule: number.as_json() for rule, number in self.by_rule.items()},
            "alone": {rule: number.as_json() for rule, number in self.alone.items()},
        }


@dataclass(frozen=True)
class PassCost:
    """Bounds of the work of a pass now."""

    pieces: Mapping[str, Bounds]
    """`dropped`, `rewritten` and `kept` → the segments of a stream, or the files of a table."""
    bytes_rewritten: Bounds
    """The lengths of files that lose some of their messages or rows, as they are now."""
    files_read: Bounds
    """The files that planning opens."""
    bytes_read: Bounds

    def as_json(self) -> JsonObject:
        """The numbers as JSON values."""
        return {
            **{name: number.as_json() for name, number in self.pieces.items()},
            "bytes_rewritten": self.bytes_rewritten.as_json(),
            "files_read": self.files_read.as_json(),
            "bytes_read": self.bytes_read.as_json(),
        }


@dataclass(frozen=True)
class SimulatedPolicy:
    """The effects of one policy."""

    name: str
    settings: Mapping[str, Any]
    """The changes to the configured policy; empty for itself."""
    limits: tuple[str, ...]
    """The policy in sentences."""
    cost: PassCost
    passes: tuple[SimulatedPass, ...]
    """One for each instant, in their order."""

    def as_json(self, noun: Noun) -> JsonObject:
        """The policy as JSON values, with names for messages or for rows."""
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "limits": list(self.limits),
            "cost": self.cost.as_json(),
            "passes": [each.as_json(noun) for each in self.passes],
        }


@dataclass(frozen=True)
class Simulation:
    """Policies side by side: the messages of one stream or topic, or the rows of one table, that each would keep."""

    subject: str
    """The name of the stream, topic or table."""
    noun: Noun
    as_of_ns: int
    """The instant of the simulation: growth begins there, and the cost is that of a pass then."""
    growth: Growth
    is_exact: bool
    """Whether rows were read; otherwise the numbers are bounds from statistics."""
    policies: tuple[SimulatedPolicy, ...]

    def as_json(self) -> JsonObject:
        """The simulation as JSON values."""
        return {
            "table" if self.noun == "rows" else "stream": self.subject,
            "as_of_ns": self.as_of_ns,
            "exact": self.is_exact,
            "growth": self.growth.as_json(),
            "policies": [policy.as_json(self.noun) for policy in self.policies],
        }


def _without(stored: int, removed: Bounds) -> Bounds:
    return Bounds(stored - removed.upper, stored - removed.lower)


def _variants_of(
    named: Mapping[str, Mapping[str, Any]] | None, settings: Mapping[str, Any]
) -> tuple[PolicyVariant, ...]:
    """The configured policy, those with names, and one of settings without a name, if there are any.

    Raises:
        UsageError: a name is that of the configured policy, or of the one without a name.
    """
    changes = {**(named or {}), **({CHANGED: settings} if settings else {})}
    if CONFIGURED in changes or (settings and CHANGED in (named or {})):
        raise UsageError(
            f"{CONFIGURED} and {CHANGED} are the names of the configured policy, and of the one without a name; give "
            "the policy another name"
        )
    variants = (PolicyVariant(name, changed) for name, changed in changes.items())
    return (PolicyVariant(CONFIGURED, {}), *variants)


def simulation_request(
    named: Mapping[str, Mapping[str, Any]] | None,
    settings: Mapping[str, Any],
    at: Iterable[str | int | date | None],
    as_of_ns: int,
    growth: str,
    *,
    exact: bool,
) -> SimulationRequest:
    """A request in the terms of its users.

    Args:
        named: name → limits.
        settings: the limits of the policy without a name.
        at: instants; `now` in them, and None, are `as_of_ns`.
        as_of_ns: nanoseconds since the epoch.
        growth: the assumption.
        exact: whether rows are read.

    Raises:
        UsageError: a name is not free, or an instant is none.
    """
    instants = (as_of_ns if each is None else parse_as_of(each, as_of_ns) for each in at)
    variants = _variants_of(named, settings)
    return SimulationRequest(variants, tuple(instants), as_of_ns, growth, exact)
