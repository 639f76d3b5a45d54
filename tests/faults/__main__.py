# ruff: noqa: T201  its figures are what it prints
"""Disturb every conversion at every call, and print the figures of docs/reliability.md.

`python -m tests.faults [--most N] [--kind KIND] [NAME …]`: at most N faults of each kind for each
conversion, once with a new target and once with one that is replaced; without N, all of them.

`python -m tests.faults --kills N [NAME …]`: signals at random moments instead, until each signal
ended N runs of each conversion.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.conversions import CONVERSIONS
from tests.faults.driver import KILLS
from tests.faults.sources import build

KINDS = ("errors", "signals", "changes")
_ALL = 1 << 30


def _driven(name: str, count: int, kinds: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        build(name, Path(folder) / name)
        words = [name, str(Path(folder) / name), str(count), *kinds]
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.driver", *words],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    for line in found["wrong"]:
        print(f"  {name}: {line}", file=sys.stderr, flush=True)
    return found


def _memory() -> str | None:
    """Return the folder of a file system in memory, which is fast; None if there is none."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def record(count: int, kinds: Sequence[str], names: Sequence[str]) -> int:
    """Disturb every conversion at its calls; return how many promises were broken."""
    broken = 0
    _row("conversion", "failed calls", "signals", "changed sources", "promises broken")
    print(f"|{'---|' * 5}")
    for name in names:
        found = _driven(name, count, kinds)
        signals = sum(n for kind, n in found["kinds"].items() if kind.startswith("SIG"))
        errors = sum(n for kind, n in found["kinds"].items() if kind.isupper()) - signals
        errors += found["kinds"].get("short", 0)
        _row(name, errors, signals, found["tried"] - signals - errors, len(found["wrong"]))
        broken += len(found["wrong"])
    return broken


def record_kills(count: int, names: Sequence[str]) -> int:
    """End every conversion at random moments; return how many promises were broken."""
    broken = 0
    _row("conversion", *(name.removeprefix("SIG") for name in KILLS), "promises broken")
    print(f"|{'---|' * (2 + len(KILLS))}")
    for name in names:
        found = _driven(name, count, ["kills"])
        _row(name, *(found["kinds"][f"killed by {kind}"] for kind in KILLS), len(found["wrong"]))
        broken += len(found["wrong"])
    return broken


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as safetensors")
    parser.add_argument("--most", type=int, default=_ALL, help="faults of each kind")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these; repeatable")
    parser.add_argument("--kills", type=int, metavar="N", help="signals at random moments instead")
    options = parser.parse_args()
    names = options.names or list(CONVERSIONS)
    if options.kills is not None:
        return int(record_kills(options.kills, names) > 0)
    return int(record(options.most, options.kind or KINDS, names) > 0)


if __name__ == "__main__":
    sys.exit(main())
