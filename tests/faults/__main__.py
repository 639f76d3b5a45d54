# ruff: noqa: T201  its figures are what it prints
"""Disturb every conversion at every call, and print the figures of docs/reliability.md.

`python -m tests.faults [COUNT] [NAME …]`: at most COUNT faults of each kind for each conversion,
once with a new target and once with one that is replaced; without COUNT, all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.conversions import CONVERSIONS
from tests.faults.sources import build

KINDS = ("errors", "signals", "changes")
_ALL = 1 << 30


def record(count: int, names: list[str]) -> int:
    """Run every driver; return how many promises were broken."""
    broken = 0
    print("| conversion | failed calls | signals | changed sources | promises broken |")
    print("|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            build(name, Path(folder) / name)
            words = [name, str(Path(folder) / name), str(count), *KINDS]
            done = subprocess.run(
                [sys.executable, "-m", "tests.faults.driver", *words],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        found = json.loads(done.stdout)
        signals = sum(n for kind, n in found["kinds"].items() if kind.startswith("SIG"))
        errors = sum(n for kind, n in found["kinds"].items() if kind.isupper()) - signals
        errors += found["kinds"].get("short", 0)
        changes = found["tried"] - signals - errors
        cells = (name, errors, signals, changes, len(found["wrong"]))
        print("|", " | ".join(map(str, cells)), "|", flush=True)
        for line in found["wrong"]:
            print(f"  {line}", file=sys.stderr, flush=True)
        broken += len(found["wrong"])
    return broken


if __name__ == "__main__":
    wanted = sys.argv[2:] or list(CONVERSIONS)
    sys.exit(record(int(sys.argv[1]) if sys.argv[1:] else _ALL, wanted) > 0)
