"""A home for Airflow, set before its import: a database of its own, no examples, every user an administrator."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.airflow.world import ROOT, World

# Airflow has thousands of modules, and each process would compile all of them again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_HOME = tempfile.TemporaryDirectory(prefix="airflow-")
HOME = Path(_HOME.name)
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of these tests alone, " * 3,
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


@pytest.fixture(scope="session")
def home() -> Path:
    """Airflow's home, with its database and the pool of the guide."""
    airflow = [sys.executable, "-m", "airflow"]
    subprocess.run([*airflow, "db", "migrate"], check=True, capture_output=True)
    pools = str(ROOT / "airflow_dags" / "pools.json")
    subprocess.run([*airflow, "pools", "import", pools], check=True, capture_output=True)
    return HOME


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A warehouse with empty streams."""
    return World(tmp_path / "lake")
