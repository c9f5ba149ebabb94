"""The allocators of Arrow and deltalake take the settings of a process that goes on for days."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from retention.startup import return_memory

LOADED = """
import os, sys
from retention.startup import return_memory
return_memory()
assert "deltalake" not in sys.modules
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
os.environ["_RJEM_MALLOC_CONF"] += ",stats_print:true"
import deltalake
"""


def test_the_library_keeps_no_freed_pages() -> None:
    # A test before this one may have followed a stream in this process.
    clean = {name: value for name, value in os.environ.items() if "_CONF" not in name}
    told = subprocess.run(
        [sys.executable, "-c", LOADED], check=True, capture_output=True, text=True, env=clean
    )
    assert told.stdout == "system\n"
    for setting in ("narenas: 1", "dirty_decay_ms: 0", "muzzy_decay_ms: 0"):
        assert f"opt.{setting}" in told.stderr


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "narenas:3")
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    before = pa.default_memory_pool().backend_name
    return_memory()
    assert os.environ["_RJEM_MALLOC_CONF"] == "narenas:3"
    assert pa.default_memory_pool().backend_name == before
