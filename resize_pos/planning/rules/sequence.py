"""1-D tables: reserved rows, then one row per text token or audio step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Lengthen, LengthMethod, SinCos, SinCosMode
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, PositionTable, Step, Unsettled, is_all_text, keep
from resize_pos.planning.geometry.grid_solver import candidates
from resize_pos.planning.rules.base import Match, Surroundings

_RESERVED = 2  # rows before the first position in every family that derives from fairseq
_ROUND = 64  # published lengths are multiples of it: 512, 1024, 448, 2048 …

_CHOICES = (
    "choose with --length-method how the new positions get their values:\n"
    "  tile             the old block again and again (Longformer, LED: 512 → 4096)\n"
    "  stretch:K        keep the first K, stretch the rest linearly (Long-CLIP: stretch:20)\n"
    "  linear | cubic   squeeze the old positions together (open_clip uses linear; fine-tune)\n"
    "  keep --fill repeat-last|tile|zeros   old positions stay as they are, new ones are learned\n"
    "  nearest          repeat each position\n"
    "short inputs that must behave as before: keep, tile or stretch:K; docs/text.md compares them."
)


def settle_table(
    match: Match,
    around: Surroundings,
    settled: Mapping[str, PositionTable],
) -> PositionTable:
    """Determine which rows are reserved and which are positions."""
    rows = match.layout.rows(match.tensor.shape)
    request = around.request
    flags = (request.prefix, request.suffix) if _owns_flags(request, settled) else (None, None)
    if match.layout.grid(match.tensor.shape) is not None:
        _require_no_flags(match, flags)
        prefix, suffix = 0, 0
        evidence: tuple[str, ...] = (f"its axes `{match.layout}` have no reserved rows",)
    else:
        suffix, from_suffix = _suffix(match, around, flags[1])
        prefix, from_prefix = _prefix(match, around, rows - suffix, flags[0])
        evidence = (*from_prefix, *from_suffix)
    length = rows - prefix - suffix
    _require_token_rows(match, around, flags[0], rows)
    if length < 1:
        raise GeometryError(
            f"{match.tensor.name} has {rows} rows; {prefix} before and {suffix} after the "
            "positions leave none.",
            hint="correct --prefix or --suffix.",
        )
    return PositionTable(
        match.tensor,
        match.family,
        match.stem,
        match.layout,
        Grid(1, length),
        prefix,
        suffix,
        evidence=evidence,
    )


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:  # noqa: ARG001
    """Change the length as requested, or keep the table if only an image size was requested."""
    target = request.to_length
    if table.family.kept is not None:
        return keep(table, table.family.kept)
    if target is None:
        return keep(table, "a text table; no length was asked for (--to-length)")
    step = _samples_per_row(table, request.from_length)
    if request.from_length is not None and table.length * step != request.from_length:
        return keep(table, f"its length {table.length} is not the {request.from_length} asked for")
    target = _rows_of_samples(table, target, step)
    if target == table.length:
        return keep(table, f"already {target}")
    shape = table.layout.shape(table.tensor.shape, table.prefix, Grid(1, target), table.suffix)
    if _is_regenerated(table, request):
        assert table.fixed is not None
        usual = SinCosMode.ABSOLUTE if table.fixed.places is None else SinCosMode.RESCALED
        fixed = SinCos(table.fixed, request.sincos or usual)
        reason = f"{table.length} → {target}: a fixed sin-cos table, computed from its formula"
        return Step(table, Action.REGENERATE, Grid(1, target), shape, fixed, reason)
    how, reason = _how(table, request, target)
    return Step(table, Action.RESIZE, Grid(1, target), shape, how, reason)


def require_lengths(
    tables: Iterable[PositionTable],
    unsettled: Sequence[Unsettled],
    request: Request,
    *,
    images_too: bool = False,
) -> None:
    """Refuse a length if there is no text table, or if several have different lengths.

    With `images_too`, the request is for many files, and some of them may have no text table.
    """
    if request.to_length is None:
        return
    text_tables = [t for t in tables if t.role is Role.SEQUENCE]
    changing = [t for t in text_tables if t.family.kept is None]
    if not text_tables and not unsettled and not images_too:
        raise TableError(
            "no text table was found, so --to-length has nothing to change.",
            hint="`resize-pos inspect` lists the tables of the file; --to SIZE is for images.",
        )
    stated = request.from_length
    lengths = sorted({table.length * _samples_per_row(table, stated) for table in changing})
    flag = "--from" if is_all_text(t.role for t in tables) else "--from-length"
    if stated is not None and lengths and stated not in lengths:
        raise _disagreement(changing, stated, flag)
    if stated is None and len(lengths) > 1 and lengths != [request.to_length]:
        shown = ", ".join(f"{table.name} {table.length}" for table in changing)
        raise GeometryError(
            f"the 1-D tables have different lengths: {shown}.",
            hint=f"say which to change: {' or '.join(f'{flag} {n}' for n in lengths)}; the others "
            "stay as they are.",
        )


def _samples_per_row(table: PositionTable, stated: int | None) -> int:
    """Return how many steps of a signal one row stands for, if `--from` counts such steps.

    Only for a table that the user names: 3136 samples in 196 rows are patches of 16.
    """
    whole = stated is not None and stated > table.length and stated % table.length == 0
    return stated // table.length if stated is not None and whole and _is_named(table) else 1


def _is_named(table: PositionTable) -> bool:
    return table.family.name == "custom"


def _rows_of_samples(table: PositionTable, target: int, step: int) -> int:
    """Turn a length in samples into a number of rows."""
    if target % step:
        below, above = target // step * step, (target // step + 1) * step
        raise GeometryError(
            f"{table.name}: --to {target} is not a multiple of {step}, the steps of the signal for "
            "which one row stands.",
            hint=f"the nearest lengths that fit are {below or above} and {above}; --to-length N "
            "without --from counts rows.",
        )
    return target // step


def _disagreement(tables: Sequence[PositionTable], stated: int, flag: str) -> GeometryError:
    table = tables[0]
    rows = table.prefix + table.length + table.suffix
    parts = [str(n) for n in (table.prefix, table.length, table.suffix) if n]
    total = f"{rows} = {' + '.join(parts)}" if len(parts) > 1 else str(rows)
    hint = f"pass {flag} {table.length}, or drop it"
    if stated == rows and table.prefix:
        hint += (
            f"; the first {table.prefix} rows are reserved and are no positions "
            "(if they are, pass --prefix 0)"
        )
    return GeometryError(
        f"{table.name} has {total} rows, so its length is {table.length}; {flag} says {stated}.",
        hint=f"{hint}.",
    )


def _owns_flags(request: Request, settled: Mapping[str, PositionTable]) -> bool:
    """Whether --prefix and --suffix apply to the text: not if an image table is resized, too."""
    image = request.to_image or request.from_size is not None or request.from_grid is not None
    only_text = all(table.role is Role.SEQUENCE for table in settled.values())
    return not image and (only_text or request.to_length is not None)


def _require_no_flags(match: Match, flags: tuple[int | None, int | None]) -> None:
    if any(flags):
        raise GeometryError(
            f"{match.tensor.name}: its axes `{match.layout}` have no rows before or after the "
            "positions.",
            hint="write the axes as `(p l s) d` to have --prefix and --suffix.",
        )


def _require_token_rows(match: Match, around: Surroundings, prefix: int | None, rows: int) -> None:
    """Ask how many rows belong to tokens, if the user writes `p` and the model has tokens."""
    if prefix is not None or "p" not in match.layout.axes or not match.prefixes:
        return
    counts = sorted({0, *(each.count for each in match.prefixes if each.count < rows)})
    if len(counts) > 1 and match.tensor.name not in around.known:
        owners = "; ".join(each.reason for each in match.prefixes if each.count)
        raise GeometryError(
            f"{match.tensor.name} has {rows} rows, and {owners}.",
            hint=f"pass {' or '.join(f'--prefix {count}' for count in reversed(counts))}.",
        )


def _suffix(match: Match, around: Surroundings, flagged: int | None) -> tuple[int, tuple[str, ...]]:
    found = candidates(match.family.suffix, match.stem, around.tensors, flagged, "--suffix")
    return found[0].count, (found[0].reason,) if found[0].count else ()


def _prefix(
    match: Match, around: Surroundings, rows: int, flagged: int | None
) -> tuple[int, tuple[str, ...]]:
    """Determine how many rows are reserved, from flags, the file's own record, the family, …"""
    name, family = match.tensor.name, match.family
    if flagged is not None:
        return flagged, (f"--prefix {flagged}",)
    if name in around.known:
        return around.known[name].prefix, around.known[name].evidence
    if family.padded:
        return _padded(match, around)
    found = candidates(family.prefix, match.stem, around.tensors, None, "--prefix")
    counts = [candidate.count for candidate in found if candidate.count < rows]
    if len(counts) == 1:
        reserved = f"the first {counts[0]} rows are reserved" if counts[0] else "no row is reserved"
        return counts[0], (f"{reserved} in the {family.name} family",)
    for told in (_told_by_config, _told_by_roundness, _told_by_flag):
        for count in counts:
            reason = told(count, rows, around)
            if reason:
                return count, (reason,)
    readings = " or ".join(f"{count} + {rows - count}" if count else str(rows) for count in counts)
    raise GeometryError(
        f"{name} has {rows} rows: {readings} positions? Some families of this name reserve the "
        f"first {_RESERVED} rows (RoBERTa, BART, OPT …), others none (BERT, LED …).",
        hint=f"pass {' or '.join(f'--prefix {count}' for count in counts)}, or put the model's "
        "config.json beside the file.",
    )


def _padded(match: Match, around: Surroundings) -> tuple[int, tuple[str, ...]]:
    for model in around.models:
        if model.model_type in match.family.models and model.pad is not None:
            count = model.pad + 1
            return count, (
                f"{model.file} says model_type {model.model_type} with pad_token_id {model.pad}: "
                f"the first {count} rows are reserved",
            )
    return _RESERVED, (
        f"the first {_RESERVED} rows are reserved in the {match.family.name} family",
    )


def _told_by_config(count: int, rows: int, around: Surroundings) -> str | None:
    """A config length below the row count excludes reserved rows; an equal one may include them."""
    for model in around.models:
        for key, value in model.lengths:
            if count and rows - count == value:
                return f"{rows} rows are {count} more than {model.file}'s {key} {value}"
    return None


def _told_by_roundness(count: int, rows: int, around: Surroundings) -> str | None:  # noqa: ARG001
    """Checked before --from, because users often pass a row count there: 514 is 2 + 512."""
    if (rows - count) % _ROUND:
        return None
    kind = f"{count} reserved rows + " if count else ""
    return f"{rows} rows are {kind}{rows - count}, a multiple of {_ROUND}"


def _told_by_flag(count: int, rows: int, around: Surroundings) -> str | None:
    stated = around.request.from_length
    return f"{rows} rows are {count} + {stated}, as --from says" if rows - count == stated else None


def _is_regenerated(table: PositionTable, request: Request) -> bool:
    """A fixed table needs no length method. If one was chosen explicitly, it is used."""
    if table.fixed is None or request.sincos is SinCosMode.INTERPOLATE:
        return False
    return request.sincos is not None or request.lengthen is None


def _how(table: PositionTable, request: Request, target: int) -> tuple[Lengthen, str]:
    words = f"{table.length} → {target}"
    how = request.lengthen
    if how is None and target < table.length:
        kept = f"the first {target} positions stay as they are, the rest is cut off"
        return Lengthen(LengthMethod.KEEP), f"{words}: {kept}"
    if how is None:
        raise TableError(
            f"{table.name} would grow from {table.length} to {target} positions, and no "
            "method is right for every model: trained text positions are not smooth.",
            hint=_CHOICES,
        )
    if how.method is LengthMethod.KEEP and target > table.length and how.fill is None:
        raise TableError(
            f"{table.name} would grow from {table.length} to {target} positions; keep needs to "
            f"know what the {target - table.length} new ones hold.",
            hint="pass --fill repeat-last, --fill tile or --fill zeros.",
        )
    if how.method is LengthMethod.STRETCH and how.first > min(table.length - 2, target - 1):
        raise TableError(
            f"{table.name}: --length-method {how.method_name} keeps {how.first} positions, which "
            f"leaves too little to stretch from {table.length} to {target}.",
            hint=f"K is at most {max(0, min(table.length - 2, target - 1))} here.",
        )
    return how, words
