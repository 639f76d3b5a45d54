"""Shared set-up of the test suite."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.builders import vit, write_safetensors
from tests.support.skips import pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary"]  # hooks

settings.register_profile("any machine", deadline=None)  # a slow machine breaks no law
settings.load_profile("any machine")

# A suite that was started in the background ignores some signals, and so would the commands that
# the tests start and interrupt.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _declare_torchvision_operators() -> None:
    """Let torchvision, and with it timm, be imported beside a torch its binary does not fit.

    The registry's torchvision cannot load its compiled operators beside a CPU build of torch, and
    then fails at import because two of them are not declared. Nothing under test calls them.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    import torch

    for compiled in Path(spec.origin).parent.glob("_C.*"):
        try:
            torch.ops.load_library(compiled)  # type: ignore[no-untyped-call]
        except (ImportError, OSError):
            continue
        return
    for operator in ("nms", "qnms"):
        signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{operator}", signature)


_declare_torchvision_operators()


@pytest.fixture
def vit_file(tmp_path: Path) -> Path:
    """A small timm-like checkpoint: a 4×4 grid and a cls row at patch 16, so 64 px."""
    return write_safetensors(tmp_path / "vit.safetensors", vit(), {"format": "pt"})
