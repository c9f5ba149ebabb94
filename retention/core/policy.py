"""The policy of a stream: its limits, and their meaning in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from retention.core.json_object import JsonObject
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND, format_size, parse_size, spell_duration
from retention.core.wording import counted

Discard = Literal["old", "new"]
Retention = Literal["limits", "interest", "workqueue"]
Unmatched = Literal["keep", "remove"]
"""The fate of messages that no consumer's filter matches."""
Expiry = Literal["head", "each"]
"""`head`: age removes messages from the lowest sequence up to the first young one; `each`: every old one."""
HoldAction = Literal["hold", "warn"]
Mode = Literal["update", "replay"]
"""`update`: a pass answers as an update of the configuration at its instant; `replay`: as a server that has applied its
limits at each publish and each expiry."""


@dataclass(frozen=True)
class ConsumerProtection:
    """The consumers for which limits keep messages, and for how long (docs/semantics/consumers-hold.md)."""

    consumers: tuple[str, ...] | None = None
    """None: every existing consumer."""
    action: HoldAction = "hold"
    """`warn`: limits remove the messages, and the pass names the consumers that still needed them."""
    max_age_ns: int | None = None
    """The age at which a message is no longer held; None: no limit."""
    max_bytes: int | None = None
    """The bytes of newest messages to hold; older messages are not held. None: no limit."""


_RARE = ("archive", "hold", "topic", "delete_retention_ns", "max_subjects")
"""Fields omitted from the JSON when they are None."""


@dataclass(frozen=True)
class Policy:
    """A stream's retention rules: nanoseconds and bytes; None means unlimited or off."""

    max_age_ns: int | None = None
    expiry: Expiry = "head"
    """The messages of that age to remove, see `Expiry`; `head` without a limit of age."""
    max_msgs: int | None = None
    max_bytes: int | None = None
    max_msgs_per_subject: int | None = None
    max_subjects: int | None = None
    delete_retention_ns: int | None = None
    """The age at which a deletion, as the last message on its subject, removes the subject."""
    discard: Discard = "old"
    whole_segments: bool = False
    retention: Retention = "limits"
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl_ns: int | None = None
    storage: Literal["file", "memory"] = "file"
    """The broker's byte accounting; this and the next two fields matter only to markers that a pass stores."""
    max_msg_size: int | None = None
    sealed: bool = False
    unmatched: Unmatched = "keep"
    """The fate of messages that no consumer's filter matches; under `limits` it plays no part."""
    hold: ConsumerProtection | None = None
    """The consumers for which limits keep messages; only under `limits`."""
    topic: TopicPolicy | None = None
    """The rules of a topic, instead of all others; None: not a topic."""
    archive: str | None = None
    """The location that files are copied to before removal; None: no archive."""
    mode: Mode = "update"
    """The question that a pass answers, see `Mode`."""

    def as_json(self) -> JsonObject:
        """The policy as JSON values, by name; part of the input of a plan's id."""
        values: JsonObject = dict(sorted(vars(self).items()))
        if self.hold is not None:
            consumers = self.hold.consumers and list(self.hold.consumers)
            values["hold"] = asdict(self.hold) | {"consumers": consumers}
        if self.topic is not None:
            values["topic"] = asdict(self.topic)
        if self.expiry == "head":
            del values["expiry"]
        if self.mode == "update":
            del values["mode"]
        return {
            name: value for name, value in values.items() if value is not None or name not in _RARE
        }

    @property
    def asks_consumers(self) -> bool:
        """Whether a pass reads the needs of consumers."""
        return self.retention != "limits" or self.hold is not None

    @property
    def rests_on_consumers(self) -> bool:
        """Whether removals depend on the needs of consumers."""
        return self.retention != "limits" or (self.hold is not None and self.hold.action == "hold")

    @property
    def trims_head(self) -> bool:
        """Whether MaxMsgs or MaxBytes remove; under `discard: new` they refuse new messages instead."""
        return self.discard == "old" and not (self.max_msgs is None and self.max_bytes is None)


def policy_from_json(values: Mapping[str, Any]) -> Policy:
    """The policy with these `as_json` values."""
    held, topic = values.get("hold"), values.get("topic")
    if held is not None:
        named = held["consumers"]
        held = ConsumerProtection(**held | {"consumers": named if named is None else tuple(named)})
    # Earlier builds had this rule of rewriting.
    known = {name: value for name, value in values.items() if name != "release_share"}
    return Policy(**{**known, "hold": held, "topic": topic and TopicPolicy(**topic)})


UNLIMITED = Policy()
"""The policy of a stream without a configuration."""


def describe(policy: Policy) -> list[str]:
    """Describe the messages to remove and the limits that never remove any, one sentence each."""
    if policy.topic is not None:
        return [*_of_topic(policy.topic), *_archives(policy)]
    return [
        _removals(policy),
        *_refusals(policy),
        *_expiry(policy),
        *_releases(policy),
        *_holds(policy),
        *_replays(policy),
        *_archives(policy),
    ]


def _replays(policy: Policy) -> list[str]:
    if policy.mode == "update":
        return []
    return [
        "a pass removes what a server with these limits would have removed, refused or answered as a duplicate, "
        "message by message (mode: replay)"
    ]


def _archives(policy: Policy) -> list[str]:
    return (
        [] if policy.archive is None else [f"removed messages are copied to {policy.archive} first"]
    )


def _of_topic(topic: TopicPolicy) -> list[str]:
    reasons = []
    if topic.message_expiry_us is not None:
        kept = spell_duration(topic.message_expiry_us * MICROSECOND)
        reasons.append(f"{kept} after its newest message was stored")
    if topic.max_topic_size is not None:
        reasons.append(f"when the topic exceeds {_size(topic.max_topic_size)}")
    sealed = (
        []
        if topic.roll_after_us is None
        else [
            "the active segment is sealed"
            f" {spell_duration(topic.roll_after_us * MICROSECOND)} after its first message was stored"
        ]
    )
    if not reasons:
        return ["no rule removes a segment", *sealed]
    held = (
        ["stored offsets of consumers that have not read it keep it"]
        if topic.respect_consumer_offsets
        else []
    )
    servers = "today's servers" if topic.profile == "modern" else "servers of 0.8"
    return [f"a sealed segment is removed {_join(reasons)}, as by {servers}", *held, *sealed]


def _removals(policy: Policy) -> str:
    reasons = _head_limits(policy)
    if policy.max_msgs_per_subject is not None:
        newer = _count(policy.max_msgs_per_subject, "newer one")
        reasons.append(f"when {newer} on its subject {_exist(policy.max_msgs_per_subject)}")
    if policy.max_subjects is not None:
        newer = _count(policy.max_subjects, "other subject")
        has = "has" if policy.max_subjects == 1 else "have"
        reasons.append(f"when {newer} {has} a newer last message than its subject")
    if policy.delete_retention_ns is not None:
        kept = spell_duration(policy.delete_retention_ns)
        reasons.append(f"{kept} after a deletion that is the last message on its subject")
    if not reasons:
        return "no limit removes a message"
    if policy.whole_segments:
        return (
            "a sealed segment is removed whole, once every message in it may be removed: a message"
            f" may be removed {_join(reasons)}"
        )
    return f"a message is removed {_join(reasons)}"


def _head_limits(policy: Policy) -> list[str]:
    reasons = []
    if policy.max_age_ns is not None:
        where = ", at any position" if policy.expiry == "each" else ""
        reasons.append(f"{spell_duration(policy.max_age_ns)} after it was stored{where}")
    if policy.discard == "new":
        return reasons
    if policy.max_msgs is not None:
        reasons.append(f"when {_count(policy.max_msgs, 'newer one')} {_exist(policy.max_msgs)}")
    if policy.max_bytes is not None:
        reasons.append(f"when it and everything newer exceed {_size(policy.max_bytes)}")
    return reasons


def _refusals(policy: Policy) -> list[str]:
    if policy.discard == "old":
        return []
    full = []
    if policy.max_msgs is not None:
        full.append(f"at {_count(policy.max_msgs, 'message')}")
    if policy.max_bytes is not None:
        full.append(f"above {_size(policy.max_bytes)}")
    if not full:
        return []
    return [f"{_join(full)} new messages are refused and stored ones are kept (discard: new)"]


def _expiry(policy: Policy) -> list[str]:
    sentences = []
    if policy.max_age_ns is not None and policy.expiry == "head":
        sentences.append(
            "age removes messages from the lowest sequence on and stops at the first young one: old ones after it are"
            " kept as long as it is (`expiry: each` would remove them too)"
        )
    if policy.allow_msg_ttl:
        sentences.append("a message with a Nats-TTL is removed when that has passed")
    if policy.subject_delete_marker_ttl_ns is not None:
        kept = spell_duration(policy.subject_delete_marker_ttl_ns)
        sentences.append(
            "when age or TTL removes the last message of a subject, a delete marker replaces it"
            f" and is kept {kept}"
        )
    return sentences


def _releases(policy: Policy) -> list[str]:
    match policy.retention:
        case "limits":
            return []
        case "interest":
            sentence = "a message is removed when every consumer that wants it has acknowledged it"
        case "workqueue":
            sentence = "a message is removed when its consumer has acknowledged it"
    unwanted = (
        ["a message that no consumer wants is removed, too"] if policy.unmatched == "remove" else []
    )
    return [sentence, *unwanted]


def _holds(policy: Policy) -> list[str]:
    rule = policy.hold
    if rule is None:
        return []
    consumers = "any consumer" if rule.consumers is None else " or ".join(rule.consumers)
    if rule.action == "warn":
        return [
            f"a pass reports the messages that it removes although {consumers} still needs them"
        ]
    bounds = (
        [] if rule.max_age_ns is None else [f"until it is {spell_duration(rule.max_age_ns)} old"]
    )
    if rule.max_bytes is not None:
        bounds.append(f"as long as newer ones of these have less than {_size(rule.max_bytes)}")
    return [f"a message that {consumers} still needs is kept nevertheless, {' and '.join(bounds)}"]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _exist(number: int) -> str:
    return "exists" if number == 1 else "exist"


def _size(size: int) -> str:
    short = format_size(size)
    return short if parse_size(short) == size else f"{counted(size, 'byte')}"


def _join(parts: list[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)}, or {last}" if first else last
