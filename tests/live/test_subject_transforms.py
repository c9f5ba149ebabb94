"""Subject transforms evaluated by a real server and here are equal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retention.core.subjects import matches
from retention.errors import RefusedError
from tests.retention.ingest.test_subject_transform import TRANSFORMS, renamed
from tests.support import nats_oracle
from tests.support.nats_oracle import Nats

pytestmark = pytest.mark.live
TOKENS = ("a", "ab", "abc", "abcdefg", "a-b", "-a", "--a", "a--b-", "é", "日本", "x*y", "$1")
"""The values for each wildcard of a source."""


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with nats_oracle.server() as running:
        yield running


def subjects_of(source: str) -> Iterator[str]:
    for at, token in enumerate(TOKENS):
        following = TOKENS[(at + 5) % len(TOKENS)]
        yield source.replace("*", token, 1).replace("*", following).replace(">", f"{token}.{token}")


def expected(source: str, destination: str, subject: str) -> str | None:
    """The transformed subject here; None: refused, because a character would be cut."""
    try:
        return renamed(source, destination, subject)[0]
    except RefusedError:
        return None


@pytest.mark.parametrize("transform", TRANSFORMS, ids=" to ".join)
def test_subjects_are_renamed_as_by_the_server(nats: Nats, transform: tuple[str, str]) -> None:
    source, destination = transform
    # `>` would overlap the server's own subjects.
    taken = source if source not in ("", ">") else "free.>"
    config = {"name": "T", "subjects": [taken]}
    nats.request(
        "STREAM.CREATE.T",
        {**config, "subject_transform": {"src": source, "dest": destination}},
    )
    given = [one for one in TRANSFORMS[transform] if matches(taken, one)] + [*subjects_of(taken)]
    names = {one: expected(*transform, one) for one in given}
    for subject, name in names.items():
        if name is not None:
            assert "error" not in nats.publish_one(subject, b"")
    stored = [message.subject for message in nats.survivors("T")]
    nats.delete("T")
    assert stored == [name for name in names.values() if name is not None]
    assert stored
