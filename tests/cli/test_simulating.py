from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sandboxes import ORDERS, Commands, commands, lines

AS_OF = "2027-01-15T08:00:00Z"


@pytest.fixture
def orders(tmp_path: Path) -> Commands:
    """ORDERS with a message per hour for ten days."""
    command = commands(tmp_path, ORDERS)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(240)))
    return command


def test_policies_of_options_and_files_stand_beside_the_configured_one(orders: Commands) -> None:
    (orders.folder / "short.yaml").write_text("max_age: 1d\n")
    document = orders.json(
        *("simulate", "ORDERS", "--as-of", AS_OF, "--at", "now", "--at", "now+8d"),
        *("--set", "max_age=9d", "--set", "max_msgs=10", "--policy", orders.folder / "short.yaml"),
        "--exact",
    )
    kept = {
        policy["name"]: [each["kept_messages"]["lower"] for each in policy["passes"]]
        for policy in document["policies"]
    }
    assert kept == {"configured": [167, 0], "short": [23, 0], "changed": [10, 10]}
    said = orders.run("simulate", "ORDERS", "--as-of", AS_OF, "--growth", "24/day").stdout
    assert "it is assumed that 24 messages a day are stored from then on" in said
    assert "at 2027-01-22T08:00:00Z: keeps 16" in said
    rows = orders.run("--format", "jsonl", "simulate", "ORDERS").stdout.splitlines()
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--set", "max_age"), "is not KEY=VALUE"),
        (("--set", "max_age=[1"), "cannot be read"),
        (("--set", "name=X"), "is not one of its limits"),
        (("--growth", "lots"), "5000/day"),
        (("--at", "yesterday"), "is not an instant"),
        (("--policy", "none.yaml"), "cannot be read"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    orders: Commands, arguments: tuple[str, ...], sentence: str
) -> None:
    done = orders.run("simulate", "ORDERS", *arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
