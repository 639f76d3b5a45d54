"""Fail a run in which a test is skipped for a reason that is not listed.

Active if RESIZE_POS_SKIPS names the kinds of machines whose reasons count, such as
`anywhere,rights`; see tests/listed_skips.toml.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "listed_skips.toml"
VARIABLE = "RESIZE_POS_SKIPS"


def listed(kinds: Iterable[str]) -> list[re.Pattern[str]]:
    """Return the patterns of the reasons that count on such machines."""
    wanted = {*kinds, *(() if sys.platform == "linux" else ("elsewhere",))}
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["skip"]
    return [re.compile(entry["reason"], re.S) for entry in entries if entry["where"] in wanted]


def unlisted(reasons: Iterable[str], kinds: Iterable[str]) -> list[str]:
    """Return the reasons that no entry of the list allows, each once."""
    patterns = listed(kinds)
    found = dict.fromkeys(reasons)
    return [reason for reason in found if not any(p.fullmatch(reason) for p in patterns)]


def _refused(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    kinds = os.environ.get(VARIABLE)
    if kinds is None or reporter is None or hasattr(config, "workerinput"):
        return []
    reasons = []
    for report in reporter.stats.get("skipped", []):
        words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons.append(words.removeprefix("Skipped: "))
    return unlisted(reasons, kinds.split(","))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and _refused(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for reason in _refused(config):
        terminalreporter.write_line(
            f"SKIPPED for a reason that {LIST.name} does not list: {reason}", red=True
        )
