"""Random configurations of a stream: its rules, its layout, and later changes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

NAME = "ORDERS"
NEIGHBOUR = "OTHERS"
"""A second stream in the same warehouse."""
SUBJECTS = ("s.a", "s.b", "s.c", "s.d")
PERSON = "s.person-4f0c2b7d9a31"
"""A subject long enough to be searched for once it is erased."""
Terms = dict[str, Any]
"""A stream's configuration, in the form of `retention.yaml`."""


def random_terms(rng: Random) -> Terms:
    """The initial configuration of a stream."""
    retention = rng.choice(["limits", "limits", "limits", "interest", "workqueue"])
    terms: Terms = {
        "name": NAME,
        "subjects": ["s.*"],
        "retention": retention,
        "format": rng.choice(["delta", "parquet"]),
        "segment_span": rng.choice(["5s", "20s", "1m", "1d"]),
        "segment_size": rng.choice([300, 900, 2500, "1MiB"]),
        "allow_rollup_hdrs": rng.random() < 0.7,
        "duplicate_window": rng.choice(["2s", "5s"]),
        "grace": rng.choice(["0s", "10s", "1m", "10m"]),
        "compact": {
            "min_files": rng.choice([2, 2, 3, 8]),
            "dead_share": f"{rng.choice([1, 20, 50])}%",
            "min_segment": rng.choice([0, 400, "8MiB"]),
        },
    }
    if terms["format"] == "delta" and rng.random() < 0.5:
        terms["vectors"] = True
    if rng.random() < 0.4:
        terms["layout"] = "deadline"
    if retention == "interest":
        terms["unmatched"] = rng.choice(["keep", "remove"])
    if retention == "limits" and rng.random() < 0.2:
        terms["whole_segments"] = True
        terms["layout"] = "sequence"
    if retention == "limits" and rng.random() < 0.3:
        terms["archive"] = "archive"
        if rng.random() < 0.6:
            terms["archive_keep"] = rng.choice(["20s", "2m", "20m"])
    terms["allow_msg_ttl"] = rng.random() < 0.6
    if terms["allow_msg_ttl"] and "whole_segments" not in terms and rng.random() < 0.6:
        terms["subject_delete_marker_ttl"] = rng.choice(["1s", "20s", "1m30s"])
        terms["allow_rollup_hdrs"] = True
    return with_limits(terms, rng)


def with_limits(terms: Terms, rng: Random) -> Terms:
    """The same stream with other limits, another grace, and other bounds of compaction."""
    limits: Terms = {}
    if rng.random() < 0.5:
        limits["max_age"] = rng.choice(["6s", "15s", "1m", "5m"])
        limits["expiry"] = rng.choice(["head", "head", "each"])
    if rng.random() < 0.4:
        limits["max_msgs"] = rng.choice([1, 5, 12, 30])
    if rng.random() < 0.3:
        limits["max_bytes"] = rng.choice([150, 600, 2000])
    if rng.random() < 0.4:
        limits["max_msgs_per_subject"] = rng.choice([1, 2, 5])
    if not terms.get("whole_segments"):
        limits |= _of_subjects(rng)
    bounded = {"max_msgs", "max_bytes"} & limits.keys()
    if bounded and rng.random() < 0.25:
        limits["discard"] = "new"
        if "max_msgs_per_subject" in limits and rng.random() < 0.5:
            limits["discard_new_per_subject"] = True
    kept = {name: value for name, value in terms.items() if name not in CHANGING}
    return kept | limits


def _of_subjects(rng: Random) -> Terms:
    """Limits that remove whole subjects."""
    limits: Terms = {}
    if rng.random() < 0.25:
        limits["delete_retention"] = rng.choice(["3s", "20s"])
    if rng.random() < 0.25:
        limits["max_subjects"] = rng.choice([1, 2, 4])
    return limits


CHANGING = (
    "max_age",
    "expiry",
    "max_msgs",
    "max_bytes",
    "max_msgs_per_subject",
    "max_subjects",
    "delete_retention",
    "discard",
    "discard_new_per_subject",
)
"""The settings that a change of policy adds or removes."""


def changed(terms: Terms, rng: Random) -> Terms:
    """The terms after a random edit."""
    what = rng.choice(["limits", "limits", "grace", "compact", "layout", "ttl"])
    graces = ["0s", "10s", "1m", "10m"]
    edits: Mapping[str, Terms] = {
        "grace": {"grace": rng.choice(graces)},
        "compact": {"compact": {"min_files": rng.choice([2, 3, 8]), "dead_share": "10%"}},
        "layout": {"layout": rng.choice(["sequence", "deadline"])},
        "ttl": {"allow_msg_ttl": True},
    }
    refused = {"layout": terms.get("whole_segments")}
    if what == "limits":
        return with_limits(terms, rng)
    return terms if refused.get(what) else terms | edits[what]
