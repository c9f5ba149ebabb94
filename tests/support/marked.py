"""Plain model of the server's update pass with subject-delete markers, message by message."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from retention.core.policy import Policy
from tests.support.worlds import NEXT_SEQ, Message, World, update

HEADING = len(b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1s\r\nNats-Rollup: sub\r\n\r\n")


@dataclass
class Server:
    """The server's state of a stream while it expires messages."""

    policy: Policy
    left: list[Message]
    gone: dict[int, str]
    next_seq: int = NEXT_SEQ
    heading: int = HEADING
    """Bytes of a marker's headers."""
    replaced: dict[int, int] = field(default_factory=dict)
    """Marker → its message, for every stored marker."""
    refused: list[Message] = field(default_factory=list)

    def expire(self, message: Message, rule: str) -> None:
        if message not in self.left or message in self.refused:
            return
        alone = [m.subject for m in self.left].count(message.subject) == 1
        if alone and not message.silent:
            marker = Message(
                self.next_seq, message.subject, 10**9, self._size(message), never=False
            )
            if not self._stores(marker, message):
                self.refused.append(message)
                return
            self.next_seq += 1
            self.left.append(marker)
            self.replaced[marker.seq] = message.seq
            if self.policy.max_msgs_per_subject == 1:
                self._drop(message, rule)
            if self.policy.discard == "old":
                self._trim()
        self._drop(message, rule)
        self.gone[message.seq] = rule

    def _size(self, message: Message) -> int:
        return 34 + len(message.subject) + self.heading

    def _stores(self, marker: Message, message: Message) -> bool:
        policy = self.policy
        if policy.sealed or (
            policy.max_msg_size is not None and policy.max_msg_size < self.heading
        ):
            return False
        at_cap = policy.max_msgs_per_subject == 1
        if policy.discard == "old":
            return True
        if policy.max_msgs is not None and len(self.left) >= policy.max_msgs and not at_cap:
            return False
        held = sum(m.size for m in self.left)
        fits = policy.max_bytes is None or held + marker.size <= policy.max_bytes
        return fits or (at_cap and message.size >= marker.size)

    def _trim(self) -> None:
        count, size = self.policy.max_msgs, self.policy.max_bytes
        while count is not None and len(self.left) > count:
            self._drop(self.left[0], "max_msgs")
        while size is not None and sum(m.size for m in self.left) > size:
            self._drop(self.left[0], "max_bytes")

    def _drop(self, message: Message, rule: str) -> None:
        if message in self.left:
            self.left.remove(message)
            self.gone[message.seq] = rule


def marked_update(
    world: World,
    policy: Policy,
    as_of_ns: int,
    next_seq: int = NEXT_SEQ,
    heading: int = HEADING,
) -> Server:
    """STREAM.UPDATE from an unlimited config with markers: limits, then the two scans."""
    limits = Policy(
        max_msgs=policy.max_msgs,
        max_bytes=policy.max_bytes,
        max_msgs_per_subject=policy.max_msgs_per_subject,
        max_subjects=policy.max_subjects,
        delete_retention_ns=policy.delete_retention_ns,
        discard=policy.discard,
    )
    gone = update(world.messages, limits, as_of_ns)
    left = [m for m in world.messages if m.seq not in gone]
    server = Server(policy, left, gone, next_seq, heading)
    _scan_ages(server, policy, as_of_ns)
    for message in list(server.left):
        if (
            not message.never
            and message.deadline_ns is not None
            and message.deadline_ns <= as_of_ns
        ):
            server.expire(message, "msg_ttl")
    return server


def _scan_ages(server: Server, policy: Policy, as_of_ns: int) -> None:
    for message in list(server.left) if policy.max_age_ns is not None else []:
        if message not in server.left:
            continue
        if message.ts_ns > as_of_ns - (policy.max_age_ns or 0):
            if policy.expiry == "each":
                continue
            return
        if not message.never:
            server.expire(message, "max_age")


marking = st.builds(
    Policy,
    max_msgs=st.none() | st.integers(2, 6),
    max_bytes=st.sampled_from([None, None, None, 30, 120, 150, 260, 400]),
    max_msgs_per_subject=st.sampled_from([None, None, 1, 2]),
    max_subjects=st.sampled_from([None, None, 1, 2]),
    delete_retention_ns=st.sampled_from([None, None, 3, 8]),
    max_age_ns=st.none() | st.integers(3, 12),
    expiry=st.sampled_from(["head", "each"]),
    discard=st.sampled_from(["old", "old", "new"]),
    allow_msg_ttl=st.just(True),  # noqa: FBT003
    subject_delete_marker_ttl_ns=st.just(1_900_000_000),
    max_msg_size=st.sampled_from([None, None, None, None, HEADING, HEADING - 1]),
    sealed=st.sampled_from([False, False, False, False, False, True]),
)
marking_instants = st.integers(8, 25)
