"""Buckets in the configuration: their streams, and errors in the words of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retention.config import load_config
from retention.config.add_bucket import add_bucket
from retention.config.effective import effective_settings
from retention.config.load import Config
from retention.core.units import DAY, HOUR, MINUTE
from retention.errors import ConfigError


def loaded(text: str) -> Config:
    return load_config("retention.yaml", text.encode())


def of_bucket(text: str) -> dict[str, Any]:
    [stream] = loaded(text).streams
    return vars(stream)


def test_a_bucket_is_the_stream_that_a_client_creates() -> None:
    """nats.go, prepareKeyValueConfig."""
    text = "buckets: [{name: B, history: 5, ttl: 1h, max_value_size: 1KiB, limit_marker_ttl: 1m, compression: true}]"
    expected = {
        "name": "KV_B",
        "subjects": ("$KV.B.>",),
        "max_msgs_per_subject": 5,
        "max_age": HOUR,
        "max_msg_size": 1024,
        "max_bytes": -1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "deny_purge": False,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": MINUTE,
        "duplicate_window": 2 * MINUTE,
        "compression": "s2",
        "segment_span": 0,
    }
    found = of_bucket(text)
    assert {key: found[key] for key in expected} == expected


def test_without_settings_the_newest_value_stays_for_ever() -> None:
    found = of_bucket("buckets: [{name: B}]")
    assert (found["max_msgs_per_subject"], found["max_age"], found["allow_msg_ttl"]) == (
        1,
        0,
        False,
    )


def test_the_duplicate_window_is_never_longer_than_the_ttl() -> None:
    assert of_bucket("buckets: [{name: B, ttl: 30s}]")["duplicate_window"] == 30 * 10**9


def test_mirrors_and_sources_are_named_by_their_buckets() -> None:
    config = loaded(
        "buckets: [{name: A}, {name: B, mirror: A}, {name: C, sources: [A, {name: KV_D}]}]"
    )
    mirror, source = config.stream("KV_B"), config.stream("KV_C")
    assert mirror is not None
    assert source is not None
    assert mirror.mirror is not None
    assert (mirror.mirror.name, mirror.subjects, mirror.mirror_direct) == ("KV_A", (), True)
    assert [origin.name for origin in source.sources] == ["KV_A", "KV_D"]
    [first, _] = source.sources
    assert (first.subject_transforms[0].src, first.subject_transforms[0].dest) == (
        "$KV.A.>",
        "$KV.C.>",
    )


def test_a_group_speaks_of_streams_and_a_bucket_of_values() -> None:
    """`history` of a group is about runs, `history` of a bucket about values of a key."""
    found = of_bucket(
        "groups: {g: {history: 30d, max_age: 5d, discard: old}}\nbuckets: [{name: B, group: g, history: 3}]"
    )
    assert (found["history"], found["max_msgs_per_subject"]) == (30 * DAY, 3)
    assert (found["max_age"], found["discard"]) == (5 * DAY, "new")


def test_effective_settings_say_where_a_bucket_says_so() -> None:
    config = loaded("buckets:\n  - name: B\n    ttl: 1h\n")
    stream = config.stream("KV_B")
    assert stream is not None
    found = {setting.key: setting for setting in effective_settings(config, stream)}
    assert (found["max_age"].source, found["max_age"].line) == ("bucket B", 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "buckets: [{name: a.b}]",
            "retention.yaml:1: name: bucket a.b: 'a.b' is not a bucket's name",
        ),
        (
            "buckets: [{name: B, history: 65}]",
            "history: bucket B: 65 values of a key cannot be kept: write 1 to 64",
        ),
        ("buckets: [{name: B, history: 0}]", "history: bucket B: 0 values"),
        (
            "buckets:\n - name: B\n   ttl: 10ms",
            "retention.yaml:3: ttl: bucket B: 10ms is too short",
        ),
        (
            "buckets: [{name: B, limit_marker_ttl: 5ms}]",
            "limit_marker_ttl: bucket B: 5ms: subject delete marker",
        ),
        (
            "buckets: [{name: B, maxbytes: 5}]",
            "maxbytes: bucket B: there is no such key; did you mean `max_bytes`?",
        ),
        ("buckets: [{name: B, max_age: 5s}]", "max_age: bucket B: a bucket calls it `ttl`"),
        ("buckets: [{name: B}, {name: B}]", "name: bucket B: another stream has this name"),
        ("buckets: [{name: B}]\nstreams: [{name: KV_B}]", "another stream has this name"),
        ("buckets: [B]", "'B' is not a mapping"),
        ("buckets: B", "'B' is not a list"),
        (
            "buckets: [{name: B, mirror: A, limit_marker_ttl: 1m}]",
            "limit_marker_ttl: bucket B: subject delete markers",
        ),
    ],
)
def test_a_mistake_is_named_in_the_bucket_s_words(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(text)
    assert said in str(raised.value)


WRITTEN = """\
# kept as it is
warehouse: ./lake   # here
buckets:
  - name: a
    ttl: 1h

  # the next one
  - {name: b}   # short
streams:
- name: ORDERS
"""


def test_a_bucket_is_added_behind_the_last_and_nothing_else_changes(tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(WRITTEN)
    place = add_bucket(load_config(file), {"name": "c", "history": 5, "description": "say: so"})
    assert place == str(file)
    entry = '  - name: c\n    history: 5\n    description: "say: so"\n'
    assert file.read_text() == WRITTEN.replace("# short\n", f"# short\n{entry}")
    added = load_config(file).stream("KV_c")
    assert added is not None
    assert added.description == "say: so"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "buckets:\n  - name: c\n"),
        ("", "buckets:\n  - name: c\n"),
        ("# only this\n", "# only this\nbuckets:\n  - name: c\n"),
        ("warehouse: .", "warehouse: .\n\nbuckets:\n  - name: c\n"),
        ("buckets:\n- name: a", "buckets:\n- name: a\n- name: c\n"),
    ],
)
def test_a_file_without_buckets_gets_its_first(
    tmp_path: Path, before: str | None, after: str
) -> None:
    file = tmp_path / "retention.yaml"
    if before is None:
        config = Config.without_file(str(tmp_path))
    else:
        file.write_text(before)
        config = load_config(file)
    add_bucket(config, {"name": "c"})
    assert file.read_text() == after
    assert load_config(file).stream("KV_c") is not None


def test_the_same_bucket_again_is_there_and_another_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    add_bucket(Config.without_file(str(tmp_path)), {"name": "c", "ttl": "1h"})
    before = file.read_bytes()
    assert add_bucket(load_config(file), {"name": "c", "ttl": "60m"}) is None
    with pytest.raises(ConfigError, match="listed already, with another ttl; nothing was changed"):
        add_bucket(load_config(file), {"name": "c", "ttl": "2h"})
    assert file.read_bytes() == before


@pytest.mark.parametrize("text", ["{buckets: []}", "buckets: []\n", "buckets: [{name: a}]\n"])
def test_where_people_have_to_write_it_nothing_is_written(tmp_path: Path, text: str) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="nothing was written; write it there: - name: c"):
        add_bucket(load_config(file), {"name": "c"})
    assert file.read_text() == text


def test_what_cannot_be_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="65 values of a key cannot be kept"):
        add_bucket(Config.without_file(str(tmp_path)), {"name": "c", "history": 65})
    assert not (tmp_path / "retention.yaml").exists()
