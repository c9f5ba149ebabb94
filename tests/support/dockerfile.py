"""Execution of a Dockerfile in a folder instead of an image, as far as possible without root and containers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

_OF_THE_MACHINE = re.compile(r"apt-get\b")
"""Steps that would change this machine; they are parsed but not executed."""
_NOT_OF_A_BUILD = ("PYTHON", "PYSPARK", "PYTEST", "SPARK", "JAVA", "VIRTUAL_ENV", "TMPDIR", "TZ")


@dataclass
class Image:
    """A stand-in for an image: a folder for its `/opt`, and its environment."""

    context: Path
    root: Path
    environment: dict[str, str]
    place: Path = field(init=False)
    """The working directory of steps and commands."""
    not_done: list[str] = field(default_factory=list)
    entry: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start at the root."""
        self.place = self.root

    def build(self, text: str) -> None:
        """Execute every instruction in order, except those on the base, arguments and the user."""
        for instruction, words in instructions(text):
            match instruction:
                case "RUN":
                    self._run(words)
                case "COPY":
                    *sources, target = shlex.split(words)
                    for source in sources:
                        (self.place / target).parent.mkdir(parents=True, exist_ok=True)
                        self._copy(self.context / source, self.place / target)
                case "WORKDIR":
                    self.place = Path(self._here(words))
                    self.place.mkdir(parents=True, exist_ok=True)
                case "ENV":
                    name, _, value = words.partition("=")
                    value = value.replace("$PATH", self.environment["PATH"])
                    self.environment[name] = self._here(value)
                case "ENTRYPOINT" | "CMD":
                    self.entry.append(words)
                case _:
                    assert instruction in {"FROM", "ARG", "USER"}, f"{instruction} is not known"

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command as in a container."""
        return subprocess.run(
            [*map(str, words)],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def _run(self, words: str) -> None:
        if _OF_THE_MACHINE.search(words):
            self.not_done.append(words)
            return
        done = self.run("sh", "-c", self._here(words))
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)

    def _here(self, text: str) -> str:
        return re.sub(r"(?<![\w.])(/opt|/var/lib/retention)\b", rf"{self.root}\1", text)


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile: name, and the rest with joined lines."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines()]


def bare_environment() -> dict[str, str]:
    """The environment of a build: from this machine it has only the access to registries, and their caches."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(_NOT_OF_A_BUILD)
    }
    return kept | {"PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}"}
