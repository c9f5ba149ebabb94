"""Hatch's build hook: the source commit in wheels and sdists, and in wheels the DAGs as data of the package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RECORD = "retention/build.txt"
DAGS = "airflow_dags"
DESCRIBE = ("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=-changed")


class BuildRecord(BuildHookInterface):  # type: ignore[type-arg]
    """Adds both to a build; an sdist's own record is kept, and RETENTION_BUILD names the commit without git."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add both, except for an editable installation of a clone, which has the DAGs, and whose commit changes."""
        if version != "editable" and self.target_name == "wheel":
            build_data["force_include"][str(Path(self.root, DAGS))] = f"retention/{DAGS}"
        build = os.environ.get("RETENTION_BUILD") or self._of_clone()
        if version == "editable" or not build or Path(self.root, RECORD).exists():
            return
        record = Path(self.directory, ".build.txt")
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(f"{build}\n", encoding="ascii")
        build_data["force_include"][str(record)] = RECORD

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the temporary file of the record."""
        Path(self.directory, ".build.txt").unlink(missing_ok=True)

    def _of_clone(self) -> str:
        if not Path(self.root, ".git").exists():
            return ""
        done = subprocess.run(DESCRIBE, cwd=self.root, capture_output=True, text=True, check=False)
        return done.stdout.strip()
