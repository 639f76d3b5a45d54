"""What a checkpoint holds, as a value and in lines for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.printable import human_size, printable
from resize_pos.core.tensors import TensorInfo, total_bytes
from resize_pos.families.tables import LeftAlone, Located, PositionTable
from resize_pos.report.groups import and_alike, extent_words, group_key, kept_rows

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic
    from resize_pos.quality.pictures import TablePictures
    from resize_pos.quality.table_health import Health


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a checkpoint holds, read from its header; `print` shows it as `inspect` does."""

    path: Path
    format: str
    tensors: Mapping[str, TensorInfo]
    located: Located
    health: Mapping[str, Health] = field(default_factory=dict)  # by table; only when asked for
    pictures: Mapping[str, TablePictures] = field(default_factory=dict)  # likewise; one of alike
    traffic: Traffic | None = None  # requests and bytes, if it is in a store

    def __str__(self) -> str:
        return "\n".join(line.plain for line in inspection_lines(self))


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line: words after a lead, each with the style that a terminal may give it."""

    text: str
    lead: tuple[str, str] = ("", "")
    indent: int = 0
    style: str = ""
    breaks: bool = True  # may be broken to fit; names and shapes must stay copyable
    ends: str = ""  # the table that this line is the last of

    @property
    def plain(self) -> str:
        """The line without styles; names from a file cannot act on a terminal."""
        return printable(" " * self.indent + self.lead[0] + self.text)


def inspection_lines(inspection: Inspection, *, verbose: bool = False) -> Iterator[TextLine]:
    """Describe the tables of a checkpoint, the evidence, and what came near."""
    tensors = inspection.tensors.values()
    size = human_size(total_bytes(tensors))
    count = len(inspection.tensors)
    head = f"{inspection.path.name}: {inspection.format}, {count} tensors, {size}"
    yield TextLine(head, breaks=False)
    located = inspection.located
    for alike in _alike(inspection):
        yield from _table(alike, inspection)
    for unsettled in located.unsettled:
        yield _tensor(unsettled.tensor)
        yield TextLine(f"{unsettled.family.name}: {unsettled.family.title}", ("family ", ""), 2)
        yield TextLine(unsettled.error.message, ("not settled: ", "yellow"), 2)
        if unsettled.error.hint:
            yield TextLine(unsettled.error.hint, ("hint: ", ""), 2)
    yield from left_alone_lines(located.left_alone)
    for miss in located.looks_like:
        yield TextLine(f"looks like a position table: {miss.tensor}", breaks=False)
        yield TextLine(miss.reason, indent=2, style="dim")
    for miss in located.near_misses:
        yield TextLine(f"not a table: {miss.tensor}", style="dim", breaks=False)
        yield TextLine(miss.reason, indent=2, style="dim")
    if not (located.tables or located.unsettled):
        yield TextLine("no position table was found.")
    if verbose:
        for info in tensors:
            yield TextLine(str(info), indent=2, breaks=False)


def left_alone_lines(entries: Sequence[LeftAlone]) -> Iterator[TextLine]:
    """Say which tensors look like tables and are none, one line for each family."""
    families: dict[str, list[LeftAlone]] = {}
    for entry in entries:
        families.setdefault(entry.family.name, []).append(entry)
    for alike in families.values():
        name = and_alike(alike[0].tensor.name, len(alike))
        yield TextLine(f"{name}: {alike[0].family.why}", ("kept: ", "dim"), 2, "dim")


def _alike(inspection: Inspection) -> Iterable[Sequence[PositionTable]]:
    """Put together the tables that have the same to say, such as one per block."""
    groups: dict[tuple[object, ...], list[PositionTable]] = {}
    for table in inspection.located.tables:
        health = inspection.health.get(table.name)
        found = None if health is None else (health.detail, health.signs)
        groups.setdefault((*group_key(table), found), []).append(table)
    return groups.values()


def _tensor(info: TensorInfo, count: int = 1) -> TextLine:
    name = and_alike(info.name, count)
    return TextLine(f"  {info.dtype} {list(info.shape)}", (name, "bold"), breaks=False)


def _table(alike: Sequence[PositionTable], inspection: Inspection) -> Iterator[TextLine]:
    table = alike[0]
    tiling = table.tiling
    size = table.stated or (tiling and tiling.pixels(table.grid))
    pixels = f", {size} px at patch {tiling}" if tiling else ""
    rows = "".join(f", {words.removesuffix(' kept')}" for words in kept_rows(table))
    yield _tensor(table.tensor, len(alike))
    yield TextLine(f"{extent_words(table)}{rows}{pixels}", indent=2, breaks=False)
    details = [TextLine(f"{table.family.name}: {table.family.title}", ("family ", ""), 2)]
    details += [TextLine(words, ("evidence: ", ""), 2) for words in table.evidence]
    if table.name in inspection.health:
        found = inspection.health[table.name]
        details.append(TextLine(found.detail, ("health: ", ""), 2))
        details += [TextLine(sign.detail, ("warning: ", "yellow"), 2) for sign in found.signs]
    yield from details[:-1]
    last = details[-1]
    yield TextLine(last.text, last.lead, last.indent, last.style, last.breaks, ends=table.name)
