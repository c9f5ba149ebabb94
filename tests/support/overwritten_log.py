"""A Delta log entry overwritten by Spark's log store on a local disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retention.api.warehouse import Warehouse

SPARK = "Apache-Spark/4.2.0 Delta-Lake/4.4.0"


def log_of(warehouse: Warehouse, stream: str = "ORDERS") -> Path:
    return Path(warehouse.location, "streams", stream, "messages/_delta_log")


def newest(warehouse: Warehouse, stream: str = "ORDERS") -> int:
    return max(int(path.stem) for path in log_of(warehouse, stream).glob("*.json"))


def overwrite(
    warehouse: Warehouse, version: int, *actions: dict[str, Any], stream: str = "ORDERS"
) -> None:
    """Do the second half of `HDFSLogStore`'s write: rename its entry into place."""
    info = {
        "operation": "OPTIMIZE",
        "operationParameters": {},
        "readVersion": version - 1,
        "isBlindAppend": False,
        "engineInfo": SPARK,
    }
    place = log_of(warehouse, stream) / f"{version:020d}.json"
    temporary = place.with_name(f".{place.name}.tmp")
    lines = [{"commitInfo": info}, *actions]
    temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
    temporary.replace(place)
