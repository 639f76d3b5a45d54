"""Which tests call which functions of a module."""

from __future__ import annotations

import ast
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest


class Calls:
    """A pytest plugin that writes, for each function below a folder, the tests that call it."""

    def __init__(self, folder: Path, output: Path) -> None:
        self._folder, self._output = f"{folder}/", output
        self._called: set[CodeType] = set()
        self._tests: dict[str, dict[int, list[tuple[float, str]]]] = {}

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        self._called.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._called.clear()
        began = time.perf_counter()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            took = time.perf_counter() - began
            for code in self._called:
                if code.co_filename.startswith(self._folder):
                    functions = self._tests.setdefault(code.co_filename, {})
                    functions.setdefault(code.co_firstlineno, []).append((took, item.nodeid))

    def pytest_sessionfinish(self) -> None:
        found = {
            path: {line: [name for _, name in sorted(tests)] for line, tests in functions.items()}
            for path, functions in self._tests.items()
        }
        self._output.write_text(json.dumps(found), encoding="utf-8")


def function_at(text: str, line: int) -> int:
    """Return the first line of the innermost function around a line; 0 outside of functions."""
    lines = [
        min([node.lineno, *(each.lineno for each in node.decorator_list)])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(lines, default=0)
