"""How many examples a law is tried on: 2,000, or what LAW_EXAMPLES says (`make check` asks for fewer)."""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("LAW_EXAMPLES", "2000"))
