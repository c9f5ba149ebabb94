from __future__ import annotations

import os
from pathlib import Path

import pytest

from retention.config.owner import Owner, owner_of

HERE = Owner(None, "/a.yaml", "one")


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (Owner(None, "/a.yaml", "one"), True),
        (Owner(None, "/a.yaml", "two"), False),
        (Owner(None, "/b.yaml", "one"), False),
        (Owner("team", "/a.yaml", "one"), True),
        (Owner("team", "/a.yaml", "two"), False),
    ],
)
def test_without_a_name_the_place_tells_configurations_apart(other: Owner, is_same: bool) -> None:
    assert HERE.is_same(other) is other.is_same(HERE) is is_same


def test_names_on_both_sides_count_alone() -> None:
    named = Owner("team", "/a.yaml", "one")
    assert named.is_same(Owner("team", "s3://lake/b.yaml", None))
    assert not named.is_same(Owner("other", "/a.yaml", "one"))


def test_a_local_place_is_absolute_and_keeps_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rev-1").mkdir()
    (tmp_path / "current").symlink_to("rev-1")
    monkeypatch.chdir(tmp_path)
    owner = owner_of("current/retention.yaml", None)
    assert owner == Owner(None, f"{tmp_path}/current/retention.yaml", os.uname().nodename)
    assert owner_of("s3a://lake/retention.yaml", "team") == Owner(
        "team", "s3://lake/retention.yaml", None
    )


def test_it_is_said_with_its_place() -> None:
    assert str(HERE) == "/a.yaml on one"
    assert str(Owner("team", "s3://lake/a.yaml", None)) == "team (s3://lake/a.yaml)"
