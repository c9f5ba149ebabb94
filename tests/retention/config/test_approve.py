from __future__ import annotations

from pathlib import Path

import pytest

from retention.config import explain_config, load_config
from retention.config.keeping import Approval
from retention.errors import ConfigError

FILE = """
defaults: {{approve: {default}}}
streams: [{{name: A, subjects: [a], approve: {own}}}, {{name: B, subjects: [b]}}]
topics: [{{name: c}}]
"""


@pytest.mark.parametrize(
    ("own", "approval", "words"),
    [
        ("false", None, ""),
        ("true", Approval(above_messages=0), "ask a person before any message is removed"),
        (
            "{above_messages: 1000, above_bytes: 1GiB}",
            Approval(above_messages=1000, above_bytes=2**30),
            "ask a person before removing more than 1,000 messages or 1 GiB at once",
        ),
    ],
)
def test_a_stream_says_itself_and_the_others_follow_the_defaults(
    tmp_path: Path, own: str, approval: Approval | None, words: str
) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(FILE.format(default="{above_bytes: 5GB}", own=own), encoding="utf-8")
    config = load_config(file)
    by_default = Approval(above_bytes=5 * 10**9)
    assert [stream.approve for stream in config.streams] == [approval, by_default, by_default]
    assert config.default_stream("unlisted").approve == by_default
    assert words in explain_config(config)[0]
    assert ("ask a person" in explain_config(config)[0]) == (own != "false")


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ("{}", "names no amount: write true, or {above_messages: 100000}"),
        ("{above: 5}", "there is no such key"),
        ("{above_messages: -1}", "out of range"),
        ("1000", "is not a mapping"),
    ],
)
def test_what_bounds_nothing_is_a_mistake(tmp_path: Path, own: str, reason: str) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(FILE.format(default="false", own=own), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"retention.yaml:3: approve") as raised:
        load_config(file)
    assert reason in str(raised.value)
