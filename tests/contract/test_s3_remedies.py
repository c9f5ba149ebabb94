"""Remedies of refusals on an object store work as described."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from typer.testing import Result

from retention.storage import files
from retention.stores.delta.internals import entry_place
from tests.support.command_line import invoke

MESSAGE = '{"subject": "orders.new"}'


class Lake:
    """The command line on a warehouse with a stream in a bucket."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.configure()
        self.published = [self.publish() for _ in range(3)]

    def configure(self, **settings: Any) -> None:
        """Set the stream's configuration."""
        stream = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 2, **settings}
        files.replace(f"{self.place}/retention.yaml", json.dumps({"streams": [stream]}).encode())

    def run(self, *words: str) -> Result:
        """Run a command."""
        given = ["--warehouse", self.place, "--engine", "local", *words]
        return invoke(given, stdin=MESSAGE)

    def publish(self) -> int:
        """Publish a message; returns its sequence."""
        done = self.run("--format", "jsonl", "publish", "ORDERS", "-")
        assert done.exit_code == 0, done.output
        return int(json.loads(done.stdout)["seq"])

    def told(self, *words: str) -> str:
        """The sentence of a refused command."""
        done = self.run(*words)
        assert done.exit_code in {4, 6}, done.output
        return done.stderr

    def goes_on(self) -> None:
        """Assert that a pass and a publish succeed, and no sequence is assigned twice."""
        for _ in range(2):
            done = self.run("apply", "ORDERS", "--yes")
            assert done.exit_code == 0, done.output
            seq = self.publish()
            assert seq > max(self.published)
            self.published.append(seq)


@pytest.fixture
def lake(bucket: str) -> Lake:
    return Lake(bucket)


def test_a_lost_object_is_given_up_as_told(lake: Lake) -> None:
    table = f"{lake.place}/streams/ORDERS/messages"
    [*_, place] = (name for name in files.walk(table) if name.endswith(".parquet"))
    files.delete([f"{table}/{place}"])
    sentence = lake.told("messages", "ORDERS")
    [text] = re.findall(r"`retention (repair lost [^`]+)`", sentence)
    done = lake.run(*shlex.split(text))
    assert done.exit_code == 0, done.output
    lake.goes_on()


@pytest.mark.thorough
def test_a_program_that_writes_otherwise_is_taken_in_as_told(lake: Lake) -> None:
    info = {"timestamp": 1, "operation": "WRITE", "engineInfo": "Apache-Spark/4.0.0"}
    entry = json.dumps({"commitInfo": info}).encode()
    table = f"{lake.place}/streams/ORDERS/messages"
    newest = len([name for name in files.names(f"{table}/_delta_log") if name.endswith(".json")])
    files.replace(entry_place(table, newest), entry)
    sentence = lake.told("apply", "ORDERS", "--yes")
    assert "set exclusive: true until one commit of this engine has followed its last" in sentence
    lake.configure(exclusive=True)
    lake.published.append(lake.publish())
    lake.configure()
    lake.goes_on()
