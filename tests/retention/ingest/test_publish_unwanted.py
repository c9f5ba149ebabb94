from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.api.stream_consumers import StreamConsumers
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.context.context import OpenedStream
from retention.core.subjects import matching_mask
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.publish import publish
from retention.ingest.published import Published
from tests.support.laws import law_on_disk
from tests.support.laying import SECOND, START, warehouse_with
from tests.support.plain_store import configured, opened_stream

NOW = START + 100 * SECOND
Make = Callable[..., OpenedStream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def made(**settings: Any) -> OpenedStream:
        strict: dict[str, Any] = {
            "retention": "interest",
            "unmatched": "remove",
            "allow_rollup_hdrs": True,
        }
        return (
            warehouse_with(tmp_path, request.param, NOW, **strict | settings)
            .stream("ORDERS")
            .opened
        )

    return made


def add(opened: OpenedStream, name: str, *filters: str) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": list(filters)}
    StreamConsumers(opened).add(config)


def left_in(opened: OpenedStream) -> list[int]:
    files = opened.store.inventory(opened.store.snapshot()).files
    read = (read_columns(file, ("seq",))[0]["seq"] for file in opened.store.data_files(files))
    return sorted(seq for column in read for seq in column.to_pylist())


def lines(subjects: Sequence[str], rollup: str | None = None) -> list[str]:
    headers = {"Nats-Rollup": rollup} if rollup else {}
    return [
        json.dumps({"subject": subject, "data": "x", "headers": headers, "ts_ns": START})
        for subject in subjects
    ]


def seqs(published: Published) -> list[int]:
    return [ack.seq for ack in published.acks()]


def test_what_nobody_wants_uses_a_sequence_and_is_not_stored(make: Make) -> None:
    opened = make()
    add(opened, "billing", "a")
    published = publish(opened, lines("abab"))
    assert seqs(published) == [1, 2, 3, 4]
    assert left_in(opened) == [1, 3]
    assert published.summary() == (
        "4 messages answered as 1 to 4; 2 not stored, because no consumer wants them"
    )
    assert seqs(publish(opened, lines("bb"))) == [5, 6]
    assert seqs(publish(make(), lines("a"))) == [7]
    assert left_in(opened) == [1, 3, 7]


@pytest.mark.parametrize(
    "kind", [{"unmatched": "keep"}, {"retention": "workqueue"}, {"retention": "limits"}]
)
def test_elsewhere_everything_is_stored(make: Make, kind: dict[str, str]) -> None:
    opened = make(**kind)
    add(opened, "billing", "a")
    publish(opened, lines("ab"))
    assert left_in(opened) == [1, 2]


def test_a_stream_without_consumers_stores_everything(make: Make) -> None:
    opened = make()
    publish(opened, lines("ab"))
    assert left_in(opened) == [1, 2]


@pytest.mark.parametrize("filters", [[], [">"]])
def test_a_consumer_of_all_subjects_wants_everything(make: Make, filters: list[str]) -> None:
    opened = make(subjects=[">"])
    add(opened, "audit", *filters)
    add(opened, "billing", "a")
    publish(opened, lines("ab"))
    assert left_in(opened) == [1, 2]


def test_a_listed_consumer_counts_before_it_is_created(make: Make) -> None:
    opened = make(consumers=[{"durable_name": "billing", "filter_subject": "b.*"}])
    publish(opened, lines(["a", "b.c", "b"]))
    assert left_in(opened) == [2]


@pytest.mark.parametrize(("rollup", "left"), [("sub", [1]), ("all", [])])
def test_a_roll_up_that_nobody_wants_takes_what_is_older_and_itself(
    make: Make, rollup: str, left: list[int]
) -> None:
    opened = make(unmatched="keep")
    add(opened, "billing", "a")
    publish(opened, lines("abb"))
    published = publish(make(), lines(["b"], rollup))
    assert seqs(published) == [4]
    assert left_in(opened) == left
    assert "2 older ones" in published.summary() or rollup == "all"


def test_a_batch_that_nobody_wants_is_written_once(make: Make) -> None:
    opened = make()
    add(opened, "billing", "a")
    assert seqs(publish(opened, lines("bb"), BatchIdentity("w", 1))) == [1, 2]
    assert publish(opened, lines("bb"), BatchIdentity("w", 1)).appended.duplicate
    assert seqs(publish(opened, lines("a"))) == [3]


def test_a_consumer_that_comes_while_a_batch_is_written_gets_its_messages(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = make()
    add(opened, "billing", "a")
    late = ["late"]

    def meanwhile(*arguments: Any) -> Any:
        found = matching_mask(*arguments)
        if late:
            add(make(), late.pop(), "b")
        return found

    monkeypatch.setattr("retention.ingest.wanted.matching_mask", meanwhile)
    assert seqs(publish(opened, lines("ab"))) == [1, 2]
    assert left_in(opened) == [1, 2]
    assert seqs(publish(opened, lines("c"))) == [3]
    assert left_in(opened) == [1, 2]


SUBJECTS = st.sampled_from(["a", "b", "b.c", "b.d", "c"])
FILTERS = st.sampled_from([("a",), ("b",), ("b.*",), ("b.>", "a"), (">",), ()])


@law_on_disk
@given(st.lists(FILTERS, max_size=3), st.lists(SUBJECTS, min_size=1, max_size=8))
def test_publishing_stores_what_a_pass_over_everything_published_leaves(
    tmp_path_factory: pytest.TempPathFactory, consumers: list[tuple[str, ...]], given_: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("law")
    strict = {"subjects": [">"], "no_ack": True, "retention": "interest", "unmatched": "remove"}
    left = []
    for unmatched in ("remove", "keep"):
        opened = opened_stream(folder / unmatched, NOW)
        opened = configured(opened, **strict | {"unmatched": unmatched})
        for at, filters in enumerate(consumers):
            add(opened, f"c{at}", *filters)
        publish(opened, lines(given_))
        if unmatched == "keep":
            apply_now(configured(opened, **strict), NOW, Engines("local"), Guards())
        left.append(left_in(opened))
    assert left[0] == left[1]
