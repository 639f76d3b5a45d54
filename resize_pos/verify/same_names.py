"""Output and source may hold the same weights in different entries: `state_dict.x` and `x`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from resize_pos.containers.base import Container
from resize_pos.containers.entry import Entry
from resize_pos.quality.checks import Check, Level

_LARGE = 0.1  # share of all tensors that an entry has, if it is one of several with weights
_SHARE = 0.5  # of the tensors of the smaller entry that the other one has, too


def with_same_names(output: Container, source: Container) -> tuple[Container, Container]:
    """View one entry of a checkpoint, or of both, if only that makes their names agree."""
    if not _weights(output).isdisjoint(_weights(source)):
        return output, source
    ours, theirs = _entries(output), _entries(source)

    def agreement(pair: tuple[str, str]) -> int:
        return len(ours[pair[0]] & theirs[pair[1]])

    first, second = best = max(product(ours, theirs), key=agreement)
    if agreement(best) < max(1, _SHARE * min(len(ours[first]), len(theirs[second]))):
        return output, source
    return _below(output, first), _below(source, second)


def _weights(container: Container) -> frozenset[str]:
    """Return the names of all tensors but those of optimizers."""
    states = tuple(f"{optimizer.state}." for optimizer in container.optimizers)
    return frozenset(name for name in container.tensors if not name.startswith(states))


def entry_notes(containers: Iterable[Container]) -> Iterator[Check]:
    """Say which entries were compared."""
    for seen in containers:
        if isinstance(seen, Entry):
            words = f"only its entry {seen.prefix.removesuffix('.')} was compared"
            yield Check("entry", Level.OK, f"{seen.path.name}: {words}")


def _entries(container: Container) -> Mapping[str, frozenset[str]]:
    """Return what may be a whole model, by the beginning of its names, and the rest of the names.

    A part such as `blocks` is no entry: what it lacks would not be noticed.
    """
    found = {}
    for wrapper in _wrappers(container):
        start: str | None = f"{wrapper}." if wrapper else ""
        while start is not None:
            names = _below(container, start).tensors
            found[start] = frozenset(names)
            firsts = {name.partition(".")[::2] for name in names}
            only = {first for first, _ in firsts}
            whole = len(only) == 1 and all(rest for _, rest in firsts)
            start = f"{start}{only.pop()}." if whole else None
    return found


def _wrappers(container: Container) -> Iterator[str]:
    yield ""
    if container.wrapper is not None:
        yield container.wrapper
        return
    counts = Counter(name.partition(".")[0] for name in container.tensors)
    yield from (name for name, n in counts.items() if n >= _LARGE * len(container.tensors))


def _below(container: Container, start: str) -> Container:
    return Entry.of(container, start) if start else container
