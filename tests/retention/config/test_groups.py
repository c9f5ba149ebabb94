from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retention.config import load_config
from retention.config.effective import effective_settings
from retention.config.server_json import server_config
from retention.core.units import DAY
from retention.errors import ConfigError

WHOLE = """\
defaults: {grace: 3d, segment_size: 1MiB}
server_defaults: {message_expiry: 3d}
groups:
  standard: {max_age: 30d, tags: [std], compact: true}
  pii:
    group: standard
    max_age: 7d
    tags: [pii, pii]
  big: {max_topic_size: 2GiB, grace: 1d}
streams:
  - {name: A, group: pii}
  - {name: B, group: pii, max_age: 1d, tags: [eu], sealed: true}
  - {name: C, group: standard, max_age:}
  - {config: {name: D, group: pii, max_msgs: 3}}
topics:
  - {name: t, group: big, tags: [eu]}
"""


def loaded(folder: Path, text: str) -> Any:
    path = folder / "retention.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        loaded(folder, text)
    return [
        line.removeprefix(f"{folder / 'retention.yaml'}:") for line in str(error.value).splitlines()
    ]


def test_own_keys_win_then_those_of_the_group_then_of_its_parents_then_the_defaults(
    tmp_path: Path,
) -> None:
    config = loaded(tmp_path, WHOLE)
    a, b, c, d, t = config.streams
    assert [stream.policy().max_age_ns for stream in (a, c, d)] == [7 * DAY, 30 * DAY, 7 * DAY]
    assert [stream.tags for stream in (a, b, c, d, t)] == [
        *(("pii",), ("eu",), ("std",), ("pii",), ("eu",))
    ]
    assert a.compact == b.compact is not None
    assert (a.grace_ns, a.segment_size) == (3 * DAY, 2**20)
    assert (t.grace_ns, t.of.max_topic_size, t.group) == (DAY, 2**31, "big")
    assert not {"tags", "group"} & server_config(a).keys()


def test_every_value_says_where_it_comes_from(tmp_path: Path) -> None:
    config = loaded(tmp_path, WHOLE)
    named = {
        stream.name: {
            setting.key: (setting.text, setting.source, setting.line)
            for setting in effective_settings(config, stream)
        }
        for stream in config.streams
    }
    a, b, t = named["A"], named["B"], named["t"]
    assert a["max_age"] == ("7d", "group pii", 7)
    assert a["compact"] == (
        '{"min_files": 8, "dead_share": 20, "min_segment": 8388608}',
        "group standard",
        4,
    )
    assert a["grace"] == ("3d", "defaults", 1)
    assert a["max_msgs"] == ("unlimited", "built in", None)
    assert a["history"] == ("forever", "built in", None)
    assert a["subjects"] == ('["A"]', "follows from other keys", None)
    assert b["tags"] == ('["eu"]', "stream B", 12)
    assert b["max_age"] == ("0s", "stream B, changed by other keys", 12)
    assert b["deny_delete"] == ("true", "follows from other keys", None)
    assert named["D"]["max_msgs"] == ("3", "stream D", 14)
    assert t["message_expiry"] == ("3d", "server_defaults", 2)
    assert t["max_topic_size"] == ("2 GiB", "group big", 9)
    assert t["segment_size"] == ("1 GiB", "built in", None)
    written_first = [setting.line for setting in effective_settings(config, config.streams[0])]
    assert written_first.index(None) == sum(line is not None for line in written_first)
    unlisted = effective_settings(config, config.default_stream("X"))
    assert {setting.source for setting in unlisted} <= {
        *("defaults", "built in", "follows from other keys")
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("groups: {a: {group: b}}", ["1: group: group a: no group is called 'b'; there are a"]),
        ("groups: {a: {group: a}}", ["1: group: group a: leads back to itself (a → a); remove one"]),
        ("groups:\n  a: {group: b}\n  b: {group: a}\n  c: {group: a}\nstreams: [{name: S, group: c}]",
         ["2: group: group a: leads back to itself (a → b → a)",
          "3: group: group b: leads back to itself (b → a → b)"]),
        ("streams:\n  - name: S\n    group: pi",
         ["3: group: stream S: no group is called 'pi'; there are none at all"]),
        ("groups: {pii: {}}\nstreams:\n  - name: S\n    group: pi",
         ["4: group: stream S: no group is called 'pi'; did you mean `pii`?"]),
        ("groups: {a: {name: x}}", ["1: name: group a: a group has its name before the colon; remove the key"]),
        ("groups: [a]", ["1: groups: ['a'] is not a mapping; write {NAME: {key: value}}"]),
        ("groups: {a: 1}", ["1: groups.a: 1 is not a mapping; write {key: value}"]),
        ("groups: {a: {group: 5}}", ['1: group: group a: 5 is not text; quote it: "5"']),
        ("groups: {a: {max_ag: 3d}}", ["1: max_ag: group a: there is no such key; did you mean `max_age`?"]),
        ("groups: {a: {tags: [x y]}}", ["1: tags: group a: ['x y'] is not a list of tags: write words without blanks"]),
        ("groups:\n  a: {max_age: 30 days}\nstreams: [{name: S, group: a}, {name: T, group: a, max_age: 1d}]",
         ["2: max_age: group a: '30 days' is not a duration"]),
        ("groups:\n  a:\n    max_age: 50ms\nstreams: [{name: S, group: a}, {name: T, group: a}, {name: U, group: a}]",
         ["3: max_age: group a: 50ms is too short; write at least 100ms, or 0 for no limit (server error 10052) "
          "(met by stream S and 2 more)"]),
        ("groups:\n  a: {max_msgs: 3}\ntopics: [{name: t, group: a}]",
         ["2: max_msgs: group a: there is no such key; docs/configuration.md lists the keys (met by topic t)"]),
        ("groups: {a: {discard: new}}\nstreams:\n  - {name: S, group: a, discard_new_per_subject: true}",
         ["3: discard_new_per_subject: stream S: works only with a limit per subject"]),
    ],
)  # fmt: skip
def test_a_mistake_is_told_once_at_the_place_where_it_is_written(
    tmp_path: Path, text: str, told: list[str]
) -> None:
    lines = mistakes(tmp_path, text)
    assert len(lines) == len(told), lines
    for line, beginning in zip(lines, told, strict=True):
        assert line.startswith(beginning), line


def test_groups_above_groups_are_bounded(tmp_path: Path) -> None:
    chain = "".join(f"  g{n}: {{group: g{n + 1}}}\n" for n in range(300))
    told = mistakes(tmp_path, f"groups:\n{chain}  g300: {{}}\nstreams: [{{name: A, group: g0}}]")
    assert told[0] == "2: group: group g0: has more than 16 groups above it; write fewer of them"
    assert len(told) == 300 - 16
    fine = "".join(f"  g{n}: {{group: g{n + 1}}}\n" for n in range(16))
    text = f"groups:\n{fine}  g16: {{max_age: 1d}}\nstreams: [{{name: A, group: g0}}]"
    assert loaded(tmp_path, text).streams[0].policy().max_age_ns == DAY


def test_a_group_that_nobody_is_in_may_be_half_a_policy(tmp_path: Path) -> None:
    text = "groups: {a: {discard_new_per_subject: true}, b: {max_topic_size: 2GiB}, c:}"
    assert loaded(tmp_path, text).streams == ()
