"""Every request to an object store fails in every possible way; repeating the command gives the normal result."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.orphans import orphans
from retention.errors import UsageError
from retention.history.runs import history_of
from retention.plan.planfile import load_plans, save_plans
from retention.storage import files
from retention.stores.checks.exclusion import refuse_without_exclusion
from tests.support.buckets import BUCKET, object_store
from tests.support.crashes import AS_OF, NOW, digest
from tests.support.faults import Call
from tests.support.front import Front, Kind, front_of, kinds_of
from tests.support.laying import SECOND, START, even_segments, lay
from tests.support.unlucky import claims, print_tally, told

ALL = os.environ.get("RETENTION_FAULTS") == "all"
"""Whether each kind of request fails in each way for each kind of path: `make long NAME=faults`; otherwise
only the commit fails, with an unknown outcome."""
TALLY: Counter[tuple[str, str, str]] = Counter()
"""The count of each failure of a request, by result."""
TRIED: set[tuple[str, str, Kind]] = set()
HASTE = {
    "max_retries": "3",
    "retry_timeout": "10s",
    "backoff_config.init_backoff": "5ms",
    "backoff_config.max_backoff": "20ms",
}
"""Settings that make deltalake give up early."""
STREAM = {"name": "ORDERS", "subjects": [">"], "no_ack": True, "max_age": "60s"}
COMMIT = "put if absent"
DOUBTFUL = (Kind.BROKEN, Kind.LOST, Kind.DEAD)
"""Failures that leave the outcome of a commit unknown."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Lake:
    """An object store behind a proxy with planned failures, and direct access to it."""

    front: Front
    behind: Any

    def objects(self, place: str) -> dict[str, bytes]:
        """The objects below a location, by relative name."""
        prefix = f"{place.removeprefix(f's3://{BUCKET}/')}/"
        listed = self.behind.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        # When pyarrow deletes an object, it leaves an empty object as the directory.
        keys = [one["Key"] for one in listed if not one["Key"].endswith("/")]
        read = {key: self.behind.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}
        return {key.removeprefix(prefix): content for key, content in read.items()}

    def put(self, objects: dict[str, bytes]) -> str:
        """A new location with these objects."""
        number = next(_numbers)
        for name, content in objects.items():
            self.behind.put_object(Bucket=BUCKET, Key=f"{number}/{name}", Body=content)
        place = f"s3://{BUCKET}/{number}"
        # Probes of a location use threads, so their requests have no fixed numbers.
        refuse_without_exclusion(f"{place}/streams/ORDERS")
        return place

    def a_minute_passes(self, place: str) -> None:
        """Let unreleased leases expire."""
        for name in self.objects(place):
            if ".lease" in name:
                key = f"{place}/{name}".removeprefix(f"s3://{BUCKET}/")
                self.behind.delete_object(Bucket=BUCKET, Key=key)


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with (
        pytest.MonkeyPatch.context() as patched,
        object_store() as environment,
        front_of(environment["AWS_ENDPOINT_URL"]) as (front, address),
    ):
        behind = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106  (the store's own)
            region_name="us-east-1",
        )
        for name, value in (environment | {"AWS_ENDPOINT_URL": address}).items():
            patched.setenv(name, value)
        options = files.storage_options
        patched.setattr(files, "storage_options", lambda: options() | HASTE)
        yield Lake(front, behind)
    if ALL:
        print_tally(TALLY)


def opened_at(place: str) -> Warehouse:
    return open_warehouse(place, engine="local", clock=lambda: NOW)


def written(place: str) -> None:
    config = {"streams": [STREAM], "defaults": {"segment_span": "10s"}}
    files.replace(f"{place}/retention.yaml", json.dumps(config).encode())
    lay(opened_at(place).stream("ORDERS").opened, even_segments(3, 10))


def applied(place: str) -> None:
    written(place)
    apply(place)


def publish(place: str) -> None:
    lines = [
        json.dumps({"subject": f"s.{n % 3}", "data": "x", "ts_ns": START + (30 + n) * SECOND})
        for n in range(15)
    ]
    opened_at(place).stream("ORDERS").publish([line.encode() for line in lines], "app", 7)


def apply(place: str) -> None:
    [outcome] = opened_at(place).apply(as_of=AS_OF)
    if outcome.error is not None:
        raise outcome.error


def apply_saved(place: str) -> None:
    warehouse = opened_at(place)
    [planned] = warehouse.plan(as_of=AS_OF)
    if planned.error is not None:
        raise planned.error
    assert planned.value is not None
    save_plans(f"{place}/plans/monday", [planned.value])
    [outcome] = warehouse.apply_plans(load_plans(f"{place}/plans/monday"))
    if outcome.error is not None:
        raise outcome.error


def bring_back(place: str) -> None:
    warehouse = opened_at(place)
    records = warehouse.history(["ORDERS"])
    if not any(record["kind"] == "undo" and record["status"] == "done" for record in records):
        done = next((one for one in records if one["kind"] == "apply"), None)
        if done is None:
            raise UsageError(
                "no run is listed that could be undone; nothing was changed; look again"
            )
        try:
            warehouse.undo(done["run"])
        except UsageError as error:
            if "was undone already" not in str(error):
                raise


def look(place: str) -> Any:
    stream = opened_at(place).stream("ORDERS")
    return [str(stream.state(AS_OF)), digest(stream), len(stream.history())]


ACTS: dict[str, tuple[Callable[[str], None], Callable[[str], Any]]] = {
    "publish": (written, publish),
    "apply": (written, apply),
    "undo": (applied, bring_back),
    "plan-file": (written, apply_saved),
    "look": (applied, look),
}


class Trial:
    """One command: its initial state, and copies of it with a failed request."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.lake = lake
        self.prepare, self.act = ACTS[name]
        lake.front.begin()
        base = f"s3://{BUCKET}/{next(_numbers)}"
        self.prepare(base)
        self.before = lake.objects(base)
        self.old = held(base)
        lake.front.begin()
        self.answer = self.act(base)
        self.calls = list(lake.front.calls)
        lake.front.begin()
        self.new, self.expected = held(base), outcome(lake, base)

    def faults(self) -> Iterator[tuple[Call, Kind]]:
        for call in self.calls:
            for kind in kinds_of(call.operation):
                known = (call.operation, call.place, kind)
                if known not in TRIED and (ALL or (call.operation == COMMIT and kind in DOUBTFUL)):
                    TRIED.add(known)
                    yield call, kind

    def wrongs(self, call: Call, kind: Kind) -> Iterator[str]:
        front, place = self.lake.front, self.lake.put(self.before)
        front.begin({(call.operation, call.nth): kind})
        error, answer = None, None
        try:
            answer = self.act(place)
        except Exception as raised:  # any error is examined
            error = raised
        is_met = front.met
        front.begin()
        said = told(error)
        TALLY[call.operation, kind, said["error"] or "done"] += 1
        name = f"{call.operation}#{call.nth} of {call.place} {kind}"
        for wrong in self._wrong(
            place, said, is_met, answer if kind is not Kind.STALE else self.answer
        ):
            yield f"{name}: {wrong}: {said['sentence']}"

    def _wrong(self, place: str, said: dict[str, Any], is_met: int, answer: Any) -> Iterator[str]:
        if not is_met:
            yield "was not met"
        if not said["ours"]:
            yield f"ends with {said['error']}"
        there = held(place)
        if said["error"] is None and (there != self.new or answer != self.answer):
            yield f"ends as if done, holds {there[0]} messages, answers {answer}"
        if there not in (self.old, self.new):
            yield f"holds {there[0]} messages, neither the old nor the new"
        if claims(said["sentence"]) and there != self.old:
            yield "claims that nothing happened"
        self.lake.a_minute_passes(place)
        self.act(place)
        found = outcome(self.lake, place)
        for key, wanted in self.expected.items():
            if found[key] != wanted:
                yield f"{key} is {found[key]} after a second try, not {wanted}"


def held(place: str) -> list[Any]:
    return digest(opened_at(place).stream("ORDERS"))


def outcome(lake: Lake, place: str) -> dict[str, Any]:
    opened = opened_at(place).stream("ORDERS").opened
    history = history_of(opened.warehouse, opened.name)
    counters = opened.store.snapshot().counters
    left = {orphan.location for orphan in orphans(opened)}
    names = [name for name in lake.objects(place) if f"{place}/{name}" not in left]
    kinds = ("messages", "subjects", "reports")
    data = [name for name in names if "_delta_log" not in name]
    ended = [one for one in history.outcomes() if one.is_done]
    return {
        "messages": held(place),
        "counters": [counters.next_seq.get(0), counters.open_base.get(0)],
        "batch": counters.batches.get("app"),
        "unfinished": history.unfinished(),
        "removed": sum(one.removed_messages for one in ended),
        "restored": sum(one.as_json().get("restored_messages", 0) for one in ended),
        "accounted": {kind: sum(kind in name for name in data) for kind in kinds},
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ACTS if ALL else ["publish"])
def test_a_request_that_fails_changes_nothing_in_the_end(
    lake: Lake, name: str, record_testsuite_property: Any
) -> None:
    trial = Trial(lake, name)
    faults = list(trial.faults())
    wrongs = [wrong for call, kind in faults for wrong in trial.wrongs(call, kind)]
    record_testsuite_property(f"faults-{name}-s3", len(faults))
    assert not wrongs, "\n".join(wrongs)
