"""Tables under names that no family knows: found by shape, and by what their values show.

A candidate is resized without being asked for only if the evidence is clear: its name, its shape
and its values agree, or its shape agrees with the size that the user states. With less evidence it
is refused, with the command that resizes it. Values are read only for candidates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role, name_pattern
from resize_pos.families.tables import PositionTable, Unsettled
from resize_pos.planning.geometry.grid_solver import Reading, RowCount
from resize_pos.planning.geometry.other_patches import CellKind, doubts
from resize_pos.planning.geometry.sincos_detect import recognise_fixed
from resize_pos.planning.rules import RULES
from resize_pos.planning.rules.base import Match, Surroundings
from resize_pos.planning.rules.patch_of_table import timed
from resize_pos.planning.unknown_names.axial import axial_pair, axial_tables
from resize_pos.planning.unknown_names.candidates import (
    Sound,
    TableCandidate,
    candidate_of,
    is_matrix_name,
    is_plain_layer,
    is_stored_map,
    token_rows,
    tokens_of,
    widths_of,
)
from resize_pos.planning.unknown_names.commands import (
    FAMILY,
    NAME,
    OpenCase,
    Strength,
    command,
    either,
    from_flag,
    reads_sequences,
    text_layout,
)
from resize_pos.planning.unknown_names.neutral_names import neutral_names
from resize_pos.planning.unknown_names.open_layouts import (
    coordinates_in,
    several_layouts,
    with_pattern,
)
from resize_pos.planning.unknown_names.shared_axis import is_line, shared_axis
from resize_pos.planning.unknown_names.signals import as_signal, reads_steps, signal_doubt
from resize_pos.planning.unknown_names.value_evidence import (
    Attempt,
    Values,
    ask_values,
    is_strip,
    is_told,
    likely,
    looks_learned,
)

_SMALL_KERNEL = 8  # pixels; a smaller convolution may be only the first step of an embedding
_OFTEN_OVERLAPPING = (8, 16)  # pixels; 7×7 cells of 32, or 37×37 of 14, are usual
_FEWEST_SHARED = 36  # cells; smaller counts are shared by chance


@dataclass(frozen=True, slots=True)
class UnknownTables:
    """The candidates of a checkpoint, by the strength of their evidence."""

    tables: tuple[PositionTable, ...] = ()
    strong: tuple[Unsettled, ...] = ()  # much evidence, but the user decides: stops every run
    weak: tuple[Unsettled, ...] = ()  # some evidence: stops a run if no other table is found
    neutral: tuple[Unsettled, ...] = ()  # only the shape: as weak ones, if nothing else has a grid

    @property
    def any(self) -> bool:
        """Whether something was found."""
        return bool(self.tables or self.strong or self.weak or self.neutral)


def find_by_value(
    around: Surroundings, settled: Mapping[str, PositionTable], explained: Collection[str]
) -> UnknownTables:
    """Look at every tensor that no family explains."""
    request = around.request
    leave = None if request.leave is None else name_pattern("--leave", *request.leave)
    also = None if request.also is None else name_pattern("--also", *request.also)
    skipped = [each for each in (leave, also) if each is not None]
    widths = around.once("widths", lambda: widths_of(around.tensors.values()))
    neutral = around.once("neutral names", lambda: neutral_names(around.tensors, widths))
    tables: list[PositionTable] = []
    open_cases: dict[Strength, list[Unsettled]] = {strength: [] for strength in Strength}
    axial: set[str] = set()
    for tensor in around.tensors.values():
        name = tensor.name
        if len(tensor.shape) < 2 or name in explained or name in axial:
            continue
        if name.endswith(".weight") and f"{name[: -len('.weight')]}.bias" in around.tensors:
            continue  # a layer; most tensors end here
        if any(each.search(name) for each in skipped):
            continue
        pair = axial_pair(tensor, around, widths)
        if pair is None and name not in neutral and is_plain_layer(tensor, around.tensors):
            continue
        result: Sequence[PositionTable] | OpenCase | None
        if pair is not None:
            axial |= {table.tensor.name for table in pair}
            result = axial_tables(pair, around, settled)
        else:
            candidate = candidate_of(tensor, widths, neutral)
            found = {**settled, **{table.name: table for table in tables}}
            result = None if candidate is None else _consider(candidate, around, settled, found)
        if isinstance(result, OpenCase):
            alone = neutral.get(name, False) or is_stored_map(tensor)
            if result.strength is not Strength.NEUTRAL or alone:
                open_cases[result.strength].append(result.entry)
        elif result is not None:
            tables += result
    return UnknownTables(tuple(tables), *map(tuple, open_cases.values()))


def _consider(
    candidate: TableCandidate,
    around: Surroundings,
    settled: Mapping[str, PositionTable],
    leaders: Mapping[str, PositionTable],
) -> Sequence[PositionTable] | OpenCase | None:
    """Judge a candidate. `leaders` are also the tables that were found by value before it."""
    attempts, errors = [], []
    little = Strength.WEAK if candidate.sound is Sound.POSITION else Strength.NEUTRAL
    if is_line(candidate.tensor, candidate.layouts[0], around.read):
        line = shared_axis(candidate.tensor, candidate.layouts[0], around.tensors, around.request)
        return _open(candidate, line, little, around)
    if counted := coordinates_in(candidate.tensor, around):
        strength = Strength.STRONG if candidate.sound is Sound.POSITION else little
        return _open(candidate, counted, strength, around, pictured=True)
    for layout in candidate.layouts:
        try:
            attempts.append(attempt_of(candidate.tensor, layout, around, leaders))
        except GeometryError as error:
            errors.append(error)
    best = likely(attempts)
    named = candidate.sound is Sound.POSITION
    readings = [each.table.layout for each in best]
    if errors and "can be read as" in errors[0].message and not any(e.supported for e in best):
        readings = list(candidate.layouts)  # its grid is open, which does not speak for another one
    if best and len(readings) > 1:
        return _open(candidate, several_layouts(candidate, readings, around), little, around)
    if not best:
        return _open(candidate, with_pattern(candidate, errors[0], around), little, around)
    attempt = best[0]
    alone = not any(table.role is Role.ABSOLUTE for table in settled.values())
    objection = _objection(candidate, attempt, around, alone)
    objection = objection or signal_doubt(attempt.table, around)
    if objection is None:
        return (_accepted(attempt, around),)
    strong = attempt.supported or (named and attempt.values is Values.CONTRADICT)
    strength = Strength.STRONG if strong else little
    return _open(candidate, objection, strength, around, pictured=attempt.supported)


def _open(
    candidate: TableCandidate,
    error: GeometryError,
    strength: Strength,
    around: Surroundings,
    *,
    pictured: bool = False,
) -> OpenCase | None:
    """Leave the decision to the user; in a model of words or sound, the rows may be a sequence.

    In a batch, sizes are pixels, so a sequence stays.
    """
    tensor, first, tensors = candidate.tensor, candidate.layouts[0], around.tensors
    layout = None if pictured else text_layout(tensor, first, tokens_of(around))
    if layout is not None and around.once("reads sequences", lambda: reads_sequences(tensors)):
        if around.many:
            return None
        if reads_steps(tensor, first, around):
            strength, error = Strength.WEAK, as_signal(error, tensor, first, around)
        else:
            flags = command(tensor, layout, tensors)
            words = f"{tensor} may hold one row per word or frame; no family knows its name."
            error = GeometryError(words, hint=either(flags, tensor, tensors))
    elif not pictured:
        error = as_signal(error, tensor, first, around)
    family = replace(FAMILY, axes=candidate.layouts)
    return OpenCase(Unsettled(tensor, family, error), strength)


def attempt_of(
    tensor: TensorInfo,
    layout: Layout,
    around: Surroundings,
    settled: Mapping[str, PositionTable],
) -> Attempt:
    """Read a tensor in one layout, and ask its values about it."""
    match = match_by_shape(tensor, layout, around, FAMILY)
    table = _settle(match, around, settled)
    table = recognise_fixed(table, around.read, around.peek)
    if table.fixed is not None and table.fixed.dimensions > 1:
        return Attempt(table, Values.FORMULA, table.evidence[-1])
    return ask_values(table, match, around)


def match_by_shape(
    tensor: TensorInfo, layout: Layout, around: Surroundings, family: Family
) -> Match:
    """Make a match whose rows may belong to any token of the model."""
    stem = tensor.name.rpartition(".")[0] + "." if "." in tensor.name else ""
    width = tensor.shape[layout.terms.index("d")] if "d" in layout.terms else 0
    before, after = around.once(
        ("token rows", stem, width), lambda: token_rows(stem, width, tokens_of(around))
    )
    if family.name != NAME and all(each.count != 1 for each in before):
        before = (*before, RowCount(1, "1 row without a token"))
    if not looks_learned(tensor, layout, around):
        after = after[:1]  # only values can show that a class row comes last
    return Match(tensor, replace(family, axes=(layout,)), stem, layout, before, after)


def _settle(
    match: Match, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Determine the geometry; a table with as many rows as a known one has its grid."""
    rule = RULES[Role.ABSOLUTE].settle
    leader = _leader(match, settled)
    if leader is None:
        return rule(match, around, settled)
    layout, tensor = match.layout, match.tensor
    whole = layout.rows(tensor.shape) == leader.layout.rows(leader.tensor.shape)
    if layout.grid(tensor.shape) is not None:
        return rule(match, around, settled)
    return PositionTable(
        tensor,
        match.family,
        match.stem,
        layout,
        leader.grid,
        leader.prefix if whole else 0,
        leader.suffix if whole else 0,
        leader.patch,
        (f"it has as many rows as {leader.name}",),
        leader.name,
        window=leader.window,
        frames=leader.frames,
        tube=leader.tube,
    )


def _leader(match: Match, settled: Mapping[str, PositionTable]) -> PositionTable | None:
    """Return the table of a family with as many rows, or as many cells."""
    rows = match.layout.rows(match.tensor.shape)
    for table in settled.values():
        plain = table.role is Role.ABSOLUTE and {"h", "w"} <= table.layout.axes
        if not plain or table.layout.has_time or table.grid.cells < _FEWEST_SHARED:
            continue
        if rows in (table.layout.rows(table.tensor.shape), table.grid.cells):
            return table
    return None


def _objection(
    candidate: TableCandidate,
    attempt: Attempt,
    around: Surroundings,
    alone: bool,
) -> GeometryError | None:
    """Return why a reading is not certain enough to be used unasked; None if it is."""
    table, request = attempt.table, around.request
    name, named = table.name, candidate.sound is Sound.POSITION
    told = is_told(around)
    if attempt.values is Values.CONTRADICT:
        return refusal(
            f"{candidate.tensor} may be a position table of {reading_of(table)}, but "
            f"{attempt.words}",
            attempt.better,
            table,
            around,
        )
    if name in around.known:
        return None
    if attempt.values is Values.STACKED:
        return GeometryError(
            f"{candidate.tensor} is probably a position table, but {attempt.words}.",
            hint=either(
                f"{command(table.tensor, timed(table.layout), around.tensors)} --from SIZE",
                table.tensor,
                around.tensors,
            ),
        )
    if is_strip(table) and not told:
        return refusal(
            f"{candidate.tensor} may be a position table of {reading_of(table)}, or "
            f"{table.grid.height} frames of {table.grid.width} rows",
            None,
            replace(table, patch=None, layout=timed(table.layout)),
            around,
        )
    if _small_kernel(table, around) and not told and table.follows is None:
        return refusal(
            f"{candidate.tensor} is probably a position table of {reading_of(table)}, but "
            f"{table.kernel} may be only the first step of its patch embedding",
            None,
            replace(table, patch=None),
            around,
        )
    if table.follows is None and not told and (doubt := _doubt_about_patch(table, around)):
        return refusal(
            f"{candidate.tensor} is probably a position table of {reading_of(table)}, but {doubt}",
            None,
            replace(table, patch=None),
            around,
        )
    shown = named and attempt.supported
    counted = table.kernel is not None or request.from_grid is not None
    divided = named and table.patch is not None and table.grid.cells >= _FEWEST_SHARED and alone
    # A vocabulary may have as many rows as a grid by chance: PARSeq reads 129 characters.
    bare = not named and is_matrix_name(name) and not attempt.supported
    stated = told and candidate.firm and (counted or divided) and not bare
    shared = named and table.follows is not None
    if shown or stated or shared:
        return None
    if named:
        words = f"{candidate.tensor} is probably a position table of {reading_of(table)}"
        reason = f"no family knows its name, and {_lower(attempt.words)}"
    else:
        words = f"{candidate.tensor} may be a position table of {reading_of(table)}"
        reason = f"its name does not say so, but {_lower(attempt.words)}"
    return refusal(f"{words}; {reason}", None, table, around)


def _accepted(attempt: Attempt, around: Surroundings) -> PositionTable:
    table = attempt.table
    words = () if attempt.words in table.evidence else (attempt.words,)
    told = () if not around.request.yes_by_value else ("--yes-by-value",)
    return replace(table, evidence=(*table.evidence, *words, *told))


def _small_kernel(table: PositionTable, around: Surroundings) -> bool:
    info = None if table.kernel is None else around.tensors.get(table.kernel)
    if info is None or len(info.shape) < 4 or table.patch is None:
        return False
    return min(table.patch.height, table.patch.width) < _SMALL_KERNEL and not around.configs


def _doubt_about_patch(table: PositionTable, around: Surroundings) -> str:
    """Say why a kernel does not show the size of the image; empty if it does.

    Patches that overlap by half give an odd number of cells.
    """
    info = None if table.kernel is None else around.tensors.get(table.kernel)
    if info is None or table.patch is None or around.configs:
        return ""
    for other in doubts(table, around.tensors):
        if other.kind is not CellKind.CHANNELS:
            return other.words
        own = max(info.shape) // table.patch.height**2
        return (
            f"{table.kernel} may read {table.patch.height}×{table.patch.width} pixels of {own} "
            f"channels, or {other.words}"
        )
    odd = table.grid.height % 2 and table.grid.width % 2 and table.grid.cells >= _FEWEST_SHARED
    if odd and len(info.shape) == 4 and table.patch.height in _OFTEN_OVERLAPPING:
        return f"patches of {table.kernel} may overlap, as {table.grid} cells are odd"
    return ""


def refusal(
    words: str, better: Reading | None, table: PositionTable, around: Surroundings
) -> GeometryError:
    """Refuse to use a table unasked, with the command that resizes it."""
    grid = table.grid if better is None else better.grid
    prefix = table.prefix if better is None else better.prefix.count
    suffix = table.suffix if better is None else better.suffix.count
    flags = command(table.tensor, table.layout, around.tensors)
    if table.layout.grid(table.tensor.shape) is None:
        flags += f" --prefix {prefix}" if prefix else ""
        flags += f" --suffix {suffix}" if suffix else ""
        known = table.patch is not None and around.request.from_size is None
        flags += f" --from-grid {grid.height}x{grid.width}" if known else from_flag(around.request)
    elif table.patch is None:
        flags += from_flag(around.request)
    return GeometryError(f"{words}.", hint=either(flags, table.tensor, around.tensors))


def reading_of(table: PositionTable) -> str:
    """Say how the rows of a table are read: 1 + 14×14."""
    parts = [str(table.prefix)] if table.prefix else []
    return " + ".join([*parts, str(table.grid), *([str(table.suffix)] if table.suffix else [])])


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]
