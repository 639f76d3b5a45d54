"""Every conversion, disturbed at calls that change files: the promises hold.

A short version: some calls and faults, always the same ones. `python -m tests.faults` does all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conversions import CONVERSIONS
from tests.faults.sources import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")

ROOT = Path(__file__).parents[2]
COUNT = 3  # faults of each kind, for new targets and for replaced ones each


def driven(*words: object, prepare: str = "") -> dict[str, Any]:
    """Run the driver in a process that has not imported torch."""
    start = "import runpy\nrunpy.run_module('tests.faults.driver', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", f"{prepare}\n{start}", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_disturbed_conversion_keeps_its_promises(name: str, tmp_path: Path) -> None:
    found = driven(name, build(name, tmp_path), COUNT, "errors", "signals", "changes")
    assert found["wrong"] == []
    assert found["tried"] >= 4 * COUNT


# Ways to write that break a promise; the driver has to see each.
CARELESS = {
    "is torn": "yield target",
    "the source was modified": (
        "yield from real(target, **how); open('src/vit.safetensors', 'ab').write(b'x')"
    ),
    "not an error in words": (
        "try:\n        yield from real(target, **how)\n"
        "    except OutputError as error:\n        raise ValueError('bug') from error"
    ),
    "the error names no file": (
        "try:\n        yield from real(target, **how)\n"
        "    except OutputError as error:\n        raise OutputError('no space') from error"
    ),
    "after the next run there are stages": (
        "target.with_name('.x.resize-pos-part').touch(); yield from real(target, **how)"
    ),
}


@pytest.mark.parametrize("words", CARELESS)
def test_the_driver_sees_a_broken_promise(words: str, tmp_path: Path) -> None:
    prepare = (
        "import contextlib\n"
        "from resize_pos.core.errors import OutputError\n"
        "from resize_pos.run import job\n"
        "real = job.staged.__wrapped__\n"
        "@contextlib.contextmanager\n"
        "def careless(target, **how):\n"
        f"    {CARELESS[words]}\n"
        "job.staged = careless\n"
    )
    found = driven("safetensors", build("safetensors", tmp_path), 4, "errors", prepare=prepare)
    assert any(words in line for line in found["wrong"]), found
