"""In CI a test is skipped for a listed reason only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.skips import LIST, VARIABLE, unlisted

ROOT = Path(__file__).parents[2]


def run(folder: Path, reason: str, kinds: str | None) -> subprocess.CompletedProcess[str]:
    """Run a suite with one test that is skipped for this reason."""
    (folder / "test_one.py").write_text(
        f"import pytest\n\ndef test_it():\n    pytest.skip({reason!r})\n\n"
        "def test_other():\n    pass\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop(VARIABLE, None)
    if kinds is not None:
        environment[VARIABLE] = kinds
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.skips", "test_one.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_unlisted_reason_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, "too tired", "anywhere,rights")
    assert done.returncode == 1
    assert "does not list: too tired" in done.stdout


@pytest.mark.parametrize("kinds", ["anywhere,rights", "rights"])
def test_a_listed_reason_does_not(kinds: str, tmp_path: Path) -> None:
    assert run(tmp_path, "mount: permission denied", kinds).returncode == 0


def test_outside_of_ci_nothing_is_enforced(tmp_path: Path) -> None:
    assert run(tmp_path, "too tired", None).returncode == 0


def test_a_reason_counts_on_its_machines_only() -> None:
    chromium = "there is no chromium on the PATH"
    assert unlisted([chromium], ["anywhere", "rights"]) == [chromium]
    assert unlisted([chromium], ["tools"]) == []


def test_every_listed_reason_is_given_by_a_test() -> None:
    """Otherwise the list keeps what no longer exists."""
    given = [
        match
        for path in (ROOT / "tests").rglob("test_*.py")
        for match in re.findall(
            r"(?:skip\(f?|reason=)(\"[^\"]+\")|importorskip\(\"([\w.]+)",
            path.read_text(encoding="utf-8"),
        )
    ]
    texts = [plain.strip('"') or f"could not import '{name}': No module" for plain, name in given]
    texts = [re.sub(r"\{dtype\}", "F8", text) for text in texts]
    texts = [re.sub(r"\{maker\[0\]\}", "mkfs.xfs", text) for text in texts]
    for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["skip"]:
        assert any(re.fullmatch(entry["reason"], text) for text in texts), entry["reason"]
        assert entry["where"] in {"anywhere", "rights", "tools", "elsewhere"}
        assert entry["why"]
