"""The judge of erasures finds what it has to judge, by ways of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.erasure.test_search import COMPRESSIBLE, SUBJECT
from tests.support import strangers_search
from tests.support.erasing import CONTAINERS, WRITTEN

UNKNOWN = {"s2"}
"""A stranger does not know what NATS compresses its backups with."""


@pytest.mark.parametrize("form", WRITTEN)
def test_it_finds_every_form(form: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x " + WRITTEN[form](SUBJECT) + b" y")
    assert strangers_search.hiding_places(str(tmp_path), [SUBJECT[:32].encode()])
    assert strangers_search.hiding_places(str(tmp_path), [SUBJECT[:-1].encode() + b"?"]) == []


@pytest.mark.parametrize("container", sorted({*CONTAINERS} - UNKNOWN))
def test_it_opens_every_container(container: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTAINERS[container](COMPRESSIBLE))
    assert strangers_search.hiding_places(str(tmp_path), [SUBJECT.encode()])


def test_it_imports_nothing_of_this_engine(tmp_path: Path) -> None:
    path = Path(strangers_search.__file__)
    assert "retention" not in path.read_text().replace("__future__", "")
    (tmp_path / f"{SUBJECT[:9]}-0017").touch()
    done = subprocess.run(
        [sys.executable, "-I", path, tmp_path, "-0017", "none of it"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.count("\n")) == (1, 1), done.stderr
