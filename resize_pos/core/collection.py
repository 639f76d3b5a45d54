"""Python's garbage collector, held back while a header is read.

A header of a million tensors becomes millions of objects, none of them in a cycle. The collector
would look through all of them again and again, which takes as long as reading them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Hold the collector back; it goes on afterwards if it was on before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
