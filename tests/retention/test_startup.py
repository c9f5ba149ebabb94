"""Processes of commands and jobs: Arrow loads without pandas, and allocators suit a process that goes on for days."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pyarrow as pa
import pytest

from retention.startup import return_memory

SPARED = """
import sys
from retention.startup import spare_pandas
spare_pandas()
spare_pandas()
assert "pyarrow" not in sys.modules
import pyarrow.compute
pyarrow.array(["a"])
assert "pandas" not in sys.modules
assert not repr(pyarrow.__spec__.loader).startswith("<retention")
import pandas
spare_pandas()
print(pyarrow.array([1]).to_pandas().sum())
"""


def test_arrow_looks_for_pandas_once_and_finds_none() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SPARED], check=True, capture_output=True, text=True
    )
    assert told.stdout == "1\n"


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


FREED = """
import ctypes
from retention.startup import return_memory
return_memory()
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]
libc.mallinfo2.restype = Info
libc.free(ctypes.c_void_p(libc.malloc(4 << 20)))
before = libc.mallinfo2().hblkhd
libc.malloc(1 << 20)
print(libc.mallinfo2().hblkhd - before >= 1 << 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_a_large_piece_comes_from_the_system_after_a_larger_one_was_freed() -> None:
    told = subprocess.run([sys.executable, "-c", FREED], check=True, capture_output=True, text=True)
    assert told.stdout == "True\n"


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "narenas:3")
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    before = pa.default_memory_pool().backend_name
    return_memory()
    assert os.environ["_RJEM_MALLOC_CONF"] == "narenas:3"
    assert pa.default_memory_pool().backend_name == before
