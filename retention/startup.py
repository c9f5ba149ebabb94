"""Processes of commands and jobs: a fast start without pandas and plugins, and memory that goes back when freed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_MMAP_THRESHOLD = -3
"""`M_MMAP_THRESHOLD` of malloc.h."""
_LARGE_BYTES = 128 << 10
"""The length from which on glibc takes a piece of memory from the system: its first setting, which is kept by this."""


class _NoPandas(MetaPathFinder):
    """An import hook that hides pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas; leave everything else to others."""
        del path, target
        if name == "pandas":
            raise ImportError(name)
        return None


class _ArrowWithoutPandas(MetaPathFinder, Loader):
    """An import hook that loads Arrow, and lets it look for pandas at once and find none."""

    _own: Loader
    """The loader of Arrow itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place of Arrow, to be loaded by this hook; leave everything else to others."""
        del path, target
        if name != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            self._own, spec.loader = spec.loader, self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Load Arrow by its own loader."""
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        _look_for_pandas(module)


def spare_pandas() -> None:
    """Let Arrow, once it is loaded, look for pandas and find none, which saves most of a second.

    Arrow looks when it first makes an array of Python values, and caches the result. Spark, which needs pandas,
    loads it later by itself.
    """
    if "pyarrow" in sys.modules:
        _look_for_pandas(sys.modules["pyarrow"])
    elif not any(isinstance(hook, _ArrowWithoutPandas) for hook in sys.meta_path):
        sys.meta_path.insert(0, _ArrowWithoutPandas())


def _look_for_pandas(arrow: ModuleType) -> None:
    """Let Arrow find no pandas, unless it is loaded already."""
    if "pandas" in sys.modules:
        return
    hook = _NoPandas()
    sys.meta_path.insert(0, hook)
    try:
        arrow.array([None])
    finally:
        sys.meta_path.remove(hook)


def spare_plugins() -> None:
    """Let pydantic look for no plugins, which it does among all installed packages: a twentieth of a second.

    A variable that is set already, also to nothing, stays.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def return_memory() -> None:
    """Let Arrow, deltalake and glibc return memory to the system at once, for a process that goes on for days.

    Arrow's own allocator keeps several times what a commit of a large table takes for a moment. That of deltalake,
    which writes a checkpoint after every ten commits, larger each time, keeps freed pages of eight arenas. glibc
    begins to take batches from its heap once the first one was freed, and they leave holes between what stays. Call
    this before deltalake is loaded; variables that the user has set stay.
    """
    import ctypes

    import pyarrow as pa

    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0")
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        # Other libraries of C have no such function.
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
