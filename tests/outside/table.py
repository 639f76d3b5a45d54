"""Write docs/outside.md: what the tool makes of every recorded model.

`python -m tests.outside.table` runs all cases and writes the page; a test compares it case by case.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.outside.cases import Case, Outcome, cases, outcome

PAGE = Path(__file__).parents[2] / "docs" / "outside.md"
_TITLE = """# Models from outside libraries

Models of libraries that no family was written for. Each was built by its own library at two image
sizes; only names, shapes and dtypes are kept (`tests/outside/headers`). The tests fill the position
tables with values that vary smoothly over the true grid, run the command, and compare every shape
with the model that the library builds at the new size, and the values with the same field there.

- **right**: converted by the command as it stands.
- **unchanged**: rightly nothing to do.
- **hint**: refused, and converted rightly after the printed flags were pasted.
- **refused**: refused; nothing is written.
- **wrong**: converted wrongly. There must be none.

"""


def row(case: Case, end: Outcome) -> str:
    """Write one line of the table."""
    flags = shlex.join(end.flags).replace("|", "\\|")
    version = case.entry["version"]
    return f"| {case.package} {version} | {case.name.partition(':')[2]} | {end.kind} | `{flags}` |"


def page() -> str:
    """Run all cases."""
    lines, counts = [], Counter[str]()
    packages = set()
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            end = outcome(case, Path(folder))
            counts[end.kind] += 1
            packages.add(case.package)
            lines.append(row(case, end))
    kinds = ("right", "unchanged", "hint", "refused", "wrong")
    told = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    total = f"{counts.total()} models of {len(packages)} packages: {told}.\n\n"
    head = "| package | model | outcome | flags |\n|---|---|---|---|\n"
    return _TITLE + total + head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
