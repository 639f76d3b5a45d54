"""Names of devices. Whether a device exists is for torch to say: `transforms/device.py`."""

from __future__ import annotations

import re

from resize_pos.core.errors import UsageError
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.printable import quoted

CPU = "cpu"

_DEVICE = lazy_regex(r"cpu|mps|cuda(?::[0-9]{1,4})?", re.ASCII)


def check_device(text: str) -> str:
    """Return a well-formed device name; refuse anything else."""
    if not isinstance(text, str) or _DEVICE.fullmatch(text) is None:
        raise UsageError(
            f"--device {quoted(text)} is not a known device.", hint="use cpu, cuda, cuda:N or mps."
        )
    return text
