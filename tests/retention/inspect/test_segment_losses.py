"""Losses of segments: every message is counted once, by its rules, in the minimum number of ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from retention.apply.run_evidence import TAKEN
from retention.inspect.segment_losses import segment_losses

Row = dict[str, Any]


def row(first: int, last: int, **other: Any) -> Row:
    """A range of a file, by default without holes, of segment 1, by max_age."""
    rules = other.get("rules", ["max_age"])
    messages = other.get("messages", last - first + 1)
    return {
        "path": "partition=0/segment=1/a.parquet",
        "partition": 0,
        "segment": 1,
        "first_seq": first,
        "last_seq": last,
        "messages": messages,
        "bytes": 10 * messages,
        "rules": rules,
        "counts": [messages] if rules else [],
        "except_firsts": [],
        "except_lasts": [],
    } | other


def losses(*rows: Row) -> list[Row]:
    found = segment_losses(pa.Table.from_pylist(list(rows), schema=TAKEN)).to_pylist()
    for loss in found:
        ranges = loss["ranges"]
        loss["ranges"] = ranges and [(each["first_seq"], each["last_seq"]) for each in ranges]
    return found


def test_neighbours_become_one_range() -> None:
    [loss] = losses(row(7, 7), row(1, 3), row(4, 5), row(9, 9))
    assert loss["ranges"] == [(1, 5), (7, 7), (9, 9)]
    assert (loss["messages"], loss["bytes"], loss["files"]) == (7, 70, 1)
    assert (loss["rules"], loss["rule_messages"]) == (["max_age"], [7])


def test_rules_segments_and_partitions_stand_apart_in_order() -> None:
    shared = {"rules": ["max_bytes", "max_age"], "counts": [2, 1]}
    found = losses(
        row(1, 1, partition=1),
        row(30, 32, segment=30, path="c", **shared),
        row(2, 2, rules=["max_bytes"]),
        row(1, 1),
        row(33, 35, segment=30, path="d", **shared),
    )
    named = [
        (loss["partition"], loss["segment"], loss["rules"], loss["messages"]) for loss in found
    ]
    assert named == [
        (0, 1, ["max_age"], 1),
        (0, 1, ["max_bytes"], 1),
        (0, 30, ["max_bytes", "max_age"], 6),
        (1, 1, ["max_age"], 1),
    ]
    assert (found[2]["rule_messages"], found[2]["files"], found[2]["ranges"]) == (
        [4, 2],
        2,
        [(30, 35)],
    )


def test_exceptions_are_cut_out() -> None:
    [loss] = losses(row(1, 10, messages=7, except_firsts=[1, 5], except_lasts=[2, 5]), row(11, 12))
    assert loss["ranges"] == [(3, 4), (6, 12)]


def test_files_of_one_kin_lie_across_each_other() -> None:
    [loss] = losses(
        row(1, 90, messages=40), row(2, 20, messages=9, path="b"), row(15, 99, path="c")
    )
    assert loss["ranges"] == [(1, 99)]
    assert loss["files"] == 3


def test_bytes_that_were_not_counted_are_no_zero() -> None:
    [loss] = losses(row(1, 1), row(2, 2, bytes=None))
    assert loss["bytes"] is None


def test_files_of_an_earlier_version_add_up_without_ranges() -> None:
    earlier: Row = {"rules": None, "counts": []}
    [loss] = losses(row(1, 10, **earlier), row(5, 10, path="new", messages=-6, **earlier))
    assert (loss["messages"], loss["bytes"], loss["files"]) == (4, 40, 1)
    assert (loss["rules"], loss["rule_messages"], loss["ranges"]) == (None, None, None)


def test_random_ranges_are_those_of_a_naive_walk() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        rows, wanted = [], set[int]()
        for number in range(int(random.integers(1, 6))):
            first, length = random.integers(1, 40), random.integers(0, 9)
            cut = sorted(set(random.integers(first, first + length + 1, 2).tolist()))
            rows.append(
                row(
                    int(first),
                    int(first + length),
                    path=str(number),
                    except_firsts=cut,
                    except_lasts=cut,
                )
            )
            wanted |= set(range(first, first + length + 1)) - set(cut)
        found = {
            seq for loss in losses(*rows) for a, b in loss["ranges"] for seq in range(a, b + 1)
        }
        assert found == wanted
