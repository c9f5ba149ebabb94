"""Streams no longer in a configuration, and two configurations on one warehouse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention import Guards, open_warehouse
from retention.api.refusals import foretold
from retention.api.unlisted import unlisted_finding
from retention.api.warehouse import Warehouse
from retention.core.units import DAY
from retention.errors import RefusedError, UsageError
from tests.support.sandboxes import NOW, ORDERS, lines

OTHER = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}


def warehouse_of(
    folder: Path, file: str, *streams: dict[str, Any], now_ns: int = NOW, **keys: Any
) -> Warehouse:
    path = folder / file
    content = {"warehouse": str(folder / "lake"), "streams": list(streams), **keys}
    path.write_text(json.dumps(content), encoding="utf-8")
    return open_warehouse(path, engine="local", clock=lambda: now_ns)


@pytest.fixture
def team(tmp_path: Path) -> Warehouse:
    """A configuration with ORDERS, and with some due messages."""
    warehouse = warehouse_of(tmp_path, "team.yaml", ORDERS)
    warehouse.stream("ORDERS").publish(lines(100))
    return warehouse


def done(warehouse: Warehouse) -> list[str]:
    outcomes = warehouse.apply()
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return [outcome.stream for outcome in outcomes]


def test_a_renamed_stream_is_named_and_the_new_name_is_the_hint(
    tmp_path: Path, team: Warehouse
) -> None:
    assert unlisted_finding(team).names == ()
    renamed = warehouse_of(tmp_path, "team.yaml", {**ORDERS, "name": "ORDERS_EU"})
    finding = unlisted_finding(renamed)
    assert finding.sentence == (
        f"ORDERS is in the warehouse, and {tmp_path}/team.yaml does not list it, so no rule removes anything from it; "
        "list it there, remove it with `retention drop ORDERS`, or write `unlisted: keep`; did you mean ORDERS_EU?"
    )
    assert finding.exit_code == 0
    assert renamed.stream("ORDERS").state().as_json()["unlisted"] is True
    assert "unlisted" not in renamed.stream("ORDERS_EU").state().as_json()


@pytest.mark.parametrize(
    ("action", "is_named", "code"), [("keep", False, 0), ("warn", True, 0), ("fail", True, 4)]
)
def test_the_configuration_says_what_follows(
    tmp_path: Path, team: Warehouse, action: str, is_named: bool, code: int
) -> None:
    del team
    finding = unlisted_finding(warehouse_of(tmp_path, "team.yaml", OTHER, unlisted=action))
    assert (bool(finding.names), finding.exit_code) == (is_named, code)


def test_a_command_about_one_stream_names_no_other(tmp_path: Path, team: Warehouse) -> None:
    del team
    renamed = warehouse_of(tmp_path, "team.yaml", OTHER)
    assert renamed.unlisted(["OTHER"]) == []
    assert renamed.unlisted(["ORDERS", "OTHER"]) == ["ORDERS"]
    assert renamed.unlisted(["OTH*"]) == renamed.unlisted(tags=["pii"]) == ["ORDERS"]


def test_a_dropped_stream_is_named_no_more_and_reclaim_still_reaches_it(
    tmp_path: Path, team: Warehouse
) -> None:
    del team
    renamed = warehouse_of(tmp_path, "team.yaml", OTHER)
    assert list(renamed.reclaimable()) == ["OTHER"]
    assert renamed.chosen_unlisted() == ["ORDERS"]
    renamed.stream("ORDERS").drop().apply()
    assert renamed.unlisted() == []
    assert list(renamed.reclaimable()) == ["OTHER", "ORDERS"]
    assert renamed.chosen_unlisted(["ORD*"]) == ["ORDERS"]
    with pytest.raises(UsageError, match=r"OTHER: a configuration lists this stream; leave out"):
        renamed.chosen_unlisted(["OTHER"])


def test_a_reclaim_deletes_nothing_of_which_no_configuration_says_the_grace(
    tmp_path: Path,
) -> None:
    careful = warehouse_of(tmp_path, "team.yaml", {**ORDERS, "grace": "90d"})
    careful.stream("ORDERS").publish(lines(100))
    done(careful)
    late = warehouse_of(tmp_path, "team.yaml", OTHER, now_ns=NOW + 20 * DAY)
    assert [outcome.stream for outcome in late.reclaim().plan] == ["OTHER"]
    assert [outcome.stream for outcome in late.reclaim(["ORDERS"]).plan] == ["ORDERS"]


def test_the_pass_of_another_configuration_leaves_plans_and_lags(
    tmp_path: Path, team: Warehouse
) -> None:
    [planned] = team.plan()
    lag = team.stream("ORDERS").state().lag
    later = NOW + DAY
    other = warehouse_of(tmp_path, "other.yaml", OTHER, now_ns=later)
    assert done(other) == ["OTHER"]
    assert unlisted_finding(other).names == ()
    assert team.stream("ORDERS").state().lag == lag
    team = open_warehouse(tmp_path / "team.yaml", engine="local", clock=lambda: later)
    assert planned.value is not None
    [outcome] = team.apply_plans([planned.value])
    assert outcome.value is not None
    assert outcome.value.removed_messages == planned.value.removed_messages > 0


def test_a_pass_without_a_policy_leaves_plans_and_lags_of_streams_that_nobody_owns(
    tmp_path: Path, team: Warehouse
) -> None:
    (tmp_path / "lake" / "streams" / "ORDERS" / "_retention" / "owner.json").unlink()
    [planned], lag = team.plan(), team.stream("ORDERS").state().lag
    other = warehouse_of(tmp_path, "other.yaml", OTHER, now_ns=NOW + DAY)
    assert done(other) == ["OTHER", "ORDERS"]
    assert unlisted_finding(other).names == ("ORDERS",)
    assert team.stream("ORDERS").state().lag == lag
    assert planned.value is not None
    [outcome] = team.apply_plans([planned.value])
    assert outcome.error is None


def test_what_rests_on_settings_is_refused_under_another_configuration(
    tmp_path: Path, team: Warehouse
) -> None:
    team.apply()
    other = warehouse_of(tmp_path, "other.yaml", OTHER)
    sentence = (
        r"^ORDERS: the configuration .*/team\.yaml on \S+ listed this stream last and owns it, and its settings are "
        r"not known here; nothing was changed; name that file with --config, or list the stream in this configuration$"
    )
    stream = other.stream("ORDERS")
    for act in (
        lambda: stream.plan().apply(),
        lambda: stream.compact().apply(),
        lambda: stream.reclaim().apply(),
    ):
        with pytest.raises(RefusedError, match=sentence):
            act()
    assert stream.state().as_json()["owner"].startswith(f"{tmp_path}/team.yaml on ")
    assert stream.plan().as_json()["removed_messages"] == 0
    assert done(warehouse_of(tmp_path, "other.yaml", OTHER, ORDERS)) == ["OTHER", "ORDERS"]
    assert done(team) == ["ORDERS"]


def test_a_plan_under_another_configuration_says_that_apply_would_refuse_it(
    tmp_path: Path, team: Warehouse
) -> None:
    done(team)
    other = warehouse_of(tmp_path, "other.yaml", OTHER)
    [planned] = other.plan(["ORDERS"])
    assert planned.value is not None, planned.sentence
    told = foretold(other, [planned.value], Guards())
    [applied] = other.apply(["ORDERS"])
    assert told["ORDERS"].value == str(applied.error)


def test_the_configuration_that_lists_a_stream_takes_it_over(
    tmp_path: Path, team: Warehouse
) -> None:
    team.apply()
    done(warehouse_of(tmp_path, "other.yaml", ORDERS))
    rest = warehouse_of(tmp_path, "team.yaml", OTHER)
    assert unlisted_finding(rest).names == ()
    assert rest.chosen() == ["OTHER"]
    assert rest.chosen(among=rest.streams()) == ["OTHER", "ORDERS"]


def test_a_directory_without_a_configuration_owns_nothing_and_disturbs_nobody(
    tmp_path: Path, team: Warehouse
) -> None:
    team.apply()
    bare = open_warehouse(tmp_path / "lake", engine="local", clock=lambda: NOW)
    assert bare.chosen() == []
    assert bare.unlisted() == []


def test_one_name_in_two_files_is_one_configuration(tmp_path: Path) -> None:
    first = warehouse_of(tmp_path, "first.yaml", ORDERS, owner="team")
    first.stream("ORDERS").publish(lines(10))
    first.apply()
    second = warehouse_of(tmp_path, "second.yaml", OTHER, owner="team")
    assert unlisted_finding(second).names == ("ORDERS",)
