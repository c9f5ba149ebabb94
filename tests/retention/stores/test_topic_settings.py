from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.api.topic import Topic
from retention.api.warehouse import open_warehouse
from retention.config import explain_config, load_config
from retention.config.topic_settings import (
    SETTINGS,
    TopicSettings,
    setting_refusals,
    updated_settings,
)
from retention.core.iggy_units import UNLIMITED
from retention.core.outcomes import Outcome
from retention.core.topic_policy import Profile
from retention.errors import ConfigError, DamagedError, StalePlanError
from retention.history.report import RunReport
from retention.plan.planfile import load_plans
from retention.stores.topic_settings import kept_settings
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = 1_800_000_000 * 10**9
FORMATS = ("delta", "parquet")
PROFILES: tuple[Profile, ...] = ("modern", "v8")
SECOND_US = 1_000_000
WEEK_US = 604_800 * SECOND_US


class Lake:
    """A topic with a repeatedly rewritten configuration."""

    def __init__(self, folder: Path, format_: str, **fixed: Any) -> None:
        with_logs(folder, format_)
        self._folder, self._fixed = folder, {"name": NAME, "partitions": 2} | fixed
        self._format = format_

    def topic(self, server: dict[str, Any] | None = None, **said: Any) -> Topic:
        """The topic, with these server defaults and these keys."""
        place = self._folder / "retention.yaml"
        defaults = {"format": self._format}
        config = {"defaults": defaults, "topics": [self._fixed | said]}
        place.write_text(json.dumps(config | ({"server_defaults": server} if server else {})))
        return open_warehouse(place, engine="local", clock=lambda: NOW).topic(NAME)

    def created(self, server: dict[str, Any] | None = None, **said: Any) -> Topic:
        """The same topic, with imported logs."""
        topic = self.topic(server, **said)
        import_logs(open_warehouse(self._folder / "retention.yaml", engine="local"), self._folder)
        return topic


def expiry_of(topic: Topic) -> int | None:
    policy = topic.opened.config.policy().topic
    assert policy is not None
    return policy.message_expiry_us


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_default_is_the_servers_when_the_topic_is_created(
    format_: str, profile: str, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, format_, profile=profile)
    topic = lake.created({"message_expiry": "7d", "max_topic_size": "20GiB"})
    assert expiry_of(topic) == WEEK_US
    for server in (None, {"message_expiry": "1s", "max_topic_size": "2GiB"}):
        for said in ({}, {"message_expiry": "server_default"}, {"message_expiry": 0}):
            later = lake.topic(server, **said)
            assert expiry_of(later) == WEEK_US
            assert later.opened.config.policy().topic.max_topic_size == 20 * 2**30  # type: ignore[union-attr]
            later.plan().apply()
    assert kept_settings(topic.opened.root) == TopicSettings(
        WEEK_US, 20 * 2**30, 2**30, defaulted=SETTINGS
    )


@pytest.mark.parametrize("format_", FORMATS)
def test_an_update_counts_for_segments_that_are_there(format_: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path, format_)
    assert lake.created().plan().apply().removed_messages == 0
    assert lake.topic(message_expiry="1s").plan().apply().by_rule == {"message_expiry": 15}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("profile", "after"), [("modern", SECOND_US), ("v8", WEEK_US)])
def test_a_key_that_is_removed_again_is_no_update_in_09_and_the_default_of_now_in_08(
    format_: str, profile: str, after: int, tmp_path: Path
) -> None:
    lake, server = Lake(tmp_path, format_, profile=profile), {"message_expiry": "7d"}
    lake.created(message_expiry="never")
    lake.topic(server, message_expiry="1s").plan().apply()
    later = lake.topic(server)
    assert expiry_of(later) == after
    later.plan().apply()
    assert expiry_of(lake.topic({"message_expiry": "never"})) == after
    assert expiry_of(lake.topic(message_expiry="never")) is None


def test_what_no_apply_has_seen_is_no_update(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    lake.created(message_expiry="7d")
    assert expiry_of(lake.topic(message_expiry="1s")) == SECOND_US
    lake.topic(message_expiry="1s").plan()
    assert expiry_of(lake.topic()) == WEEK_US


def test_the_segment_size_is_settled_when_the_topic_is_created(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "parquet")
    lake.created({"segment_size": "2MiB"})
    assert lake.topic().opened.config.segment_size == 2 * 2**20
    assert lake.topic(segment_size="2MiB").opened.config.segment_size == 2 * 2**20
    with pytest.raises(ConfigError) as refused:
        lake.topic(segment_size="4MiB")
    assert refused.value.exit_code == 2
    assert "segment_size: 2097152, or remove it" in str(refused.value)
    with pytest.raises(ConfigError, match="1048576 is less than one segment of 2097152"):
        lake.topic({"segment_size": "1MiB"}, max_topic_size="1MiB")
    with pytest.raises(ConfigError, match="or unlimited, or the segment_size that the topic has"):
        lake.topic(max_topic_size="4MiB")
    assert (
        lake.topic(max_topic_size="4MiB", segment_size="2MiB").opened.config.segment_size
        == 2 * 2**20
    )


def test_a_server_of_08_has_one_segment_size_for_all_topics(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "parquet", profile="v8")
    lake.created({"segment_size": "2MiB"})
    assert lake.topic({"segment_size": "4MiB"}).opened.config.segment_size == 4 * 2**20
    assert lake.topic(segment_size=512).opened.config.segment_size == 512


def test_a_saved_plan_of_other_settings_is_refused_and_updates_nothing(tmp_path: Path) -> None:
    lake, place, server = Lake(tmp_path, "delta"), tmp_path / "plan.json", {"message_expiry": "1s"}
    lake.created(server).plan().save(place)

    def applied() -> Outcome[RunReport]:
        path = tmp_path / "retention.yaml"
        warehouse = open_warehouse(path, engine="local", clock=lambda: NOW)
        return warehouse.apply_plans(load_plans(str(place)))[0]

    lake.topic(message_expiry="never")
    assert isinstance(applied().error, StalePlanError)
    lake.topic()
    outcome = applied()
    assert outcome.value is not None
    assert outcome.value.removed_messages == 15


def test_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    place = Path(lake.created(message_expiry="7d").opened.root) / "_retention" / "topic.json"
    for content in (place.read_text().replace("6048", "6049"), "{}", "[]", "", '{"defaulted": 1}'):
        place.write_text(content)
        with pytest.raises(DamagedError, match=r"topic\.json: the settings that this topic keeps"):
            lake.topic()


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (
            {"message_expiry": "server_default"},
            "the server's default cannot be the server's default",
        ),
        ({"max_topic_size": 0}, "0 is refused"),
        ({"segment_size": 1000}, "1000 is out of range"),
        ({"max_topic_size": "1MiB"}, "1048576 is less than one segment of 1073741824"),
        ({"partitions": 2}, "there is no such key"),
    ],
)
def test_impossible_defaults_are_refused(server: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        Lake(tmp_path, "delta").topic(server)


limits = st.sampled_from([1, WEEK_US, 2**40, UNLIMITED])
names = st.lists(st.sampled_from(SETTINGS), unique=True).map(lambda some: tuple(sorted(some)))
settings = st.builds(
    TopicSettings, limits, limits, st.sampled_from([2**20, 2**30]), defaulted=names
)


@given(settings, settings, st.sampled_from(PROFILES))
def test_an_update_changes_what_it_names_and_the_same_one_again_nothing(
    kept: TopicSettings, said: TopicSettings, profile: Profile
) -> None:
    after = updated_settings(kept, said, profile)
    assert updated_settings(after, said, profile) == after
    for name in SETTINGS:
        if name not in said.defaulted:
            assert getattr(after, name) == getattr(said, name)
            assert name not in after.defaulted
        elif profile == "modern":
            assert getattr(after, name) == getattr(kept, name)
            assert (name in after.defaulted) == (name in kept.defaulted)
        else:
            assert name in after.defaulted
    assert updated_settings(kept, kept, profile) == kept


def test_a_cap_of_nothing_is_never_taken() -> None:
    [found] = setting_refusals(TopicSettings(UNLIMITED, 0, 2**30), "v8")
    assert found.keys[0] == "max_topic_size"


def test_the_words_of_a_configuration_say_what_is_left_to_the_server(tmp_path: Path) -> None:
    place = tmp_path / "retention.yaml"
    server = {"message_expiry": "7d"}
    topics = [
        {"name": "a", "max_topic_size": "2GiB"},
        {"name": "b", **dict.fromkeys(SETTINGS, 2**30)},
    ]
    place.write_text(json.dumps({"server_defaults": server, "topics": topics}))
    left, named = explain_config(load_config(place))
    assert "is removed 7 days after its newest message was stored, or when" in left
    assert (
        "Left to the server, and fixed when the topic is created: message_expiry, segment_size."
        in left
    )
    assert "left to the server" not in named.lower()
