"""A short run of the fuzzer over every parser; `python -m tests.hostile.fuzz` makes a long one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.hostile.parsers import PARSERS, Parser, attempt

INPUTS = 150


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_mutated_inputs_are_read_or_refused(parser: Parser, tmp_path: Path) -> None:
    for number in range(INPUTS):
        random = Random(f"short:{parser.name}:{number}")
        error = attempt(parser, parser.make(random), tmp_path, random)
        if error is not None:
            raise AssertionError(f"input {number}") from error
