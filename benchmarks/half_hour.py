"""`python -m benchmarks.half_hour`: every benchmark in turn, at sizes that take two processors half an hour together.

Each prints its own tables. One that fails is reported at the end, and the others are measured all the same.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import report
from benchmarks.comparing import say

WITHOUT_SPARK = "ours,deltalake,deltalake-partition,duckdb,polars,pyiceberg"
SHORT = {
    "": f"--runs 3 --contenders {WITHOUT_SPARK} --output {os.devnull}",
    ".ttl": f"--runs 3 --contenders {WITHOUT_SPARK}",
    ".compaction": "--files 500 --nights 5 --runs 3 --contenders ours,deltalake,duckdb,polars",
    ".metadata": "--segments 10000 100000 --streams 100 --runs 3",
    ".cold": "--runs 5 --only libraries,quiet,drop",
    ".consumers": "--messages 100000 --runs 3",
    ".single_writes": "",
    ".topics": "--segments 10000 --runs 3 --mebibytes 64",
    ".sync": "--runs 3",
    ".holds": "",
    ".verify": "--runs 3",
    ".erasing": "--files 5",
    ".appends": "--messages 500000 --runs 3",
    ".tables": "--rows 1000000 --files 20 --runs 3 --contenders ours,ours+vectors,deltalake,duckdb,polars,pyiceberg",
    ".growth": "--millions 5 --contenders ours,ours-spark,delta-spark,duckdb",
    ".curves": "--times 1 10 --runs 1",
}
"""The end of a module's name → its arguments."""


def main() -> int:
    """Run the benchmarks; 1 if one failed, for instance because contenders leave different messages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.half_hour", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[*SHORT], help="ends of modules' names")
    parser.add_argument("--output", type=Path, help="a Markdown file that gets the tables, too")
    options = parser.parse_args()
    around = report.surroundings()
    libraries = ", ".join(f"{name} {version}" for name, version in around["libraries"].items())
    texts = [f"{around['system']}; Python {around['python']}, {libraries}.\n"]
    print(texts[0], flush=True)
    failed = []
    for name in options.only:
        text, is_done = _section(name)
        print(text, flush=True)
        texts.append(text)
        failed += [] if is_done else [f"benchmarks{name}"]
    if options.output:
        options.output.write_text("\n".join(texts), encoding="utf-8")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _section(name: str) -> tuple[str, bool]:
    """The tables of a benchmark under its command and minutes, and whether it ended well."""
    words = ["-m", f"benchmarks{name}", *shlex.split(SHORT[name])]
    command = f"python {shlex.join(words)}"
    say(command)
    started = time.monotonic()
    done = subprocess.run([sys.executable, *words], check=False, stdout=subprocess.PIPE, text=True)
    minutes = (time.monotonic() - started) / 60
    return f"## `{command}`: {minutes:.1f} minutes\n\n{done.stdout}", done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
