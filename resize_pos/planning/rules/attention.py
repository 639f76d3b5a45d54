"""`--attention-scale`: multiply the queries of a resized tower by √(log N′ ÷ log N).

With more tokens the softmax of attention gets flatter, with fewer it gets sharper. The factor keeps
its entropy about the same. It is folded into the weights and biases that make the queries. N is
the number of rows of the position table, prefix rows included.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from resize_pos.configs.values import ConfigEdit
from resize_pos.core.axes import Layout
from resize_pos.core.errors import TableError
from resize_pos.core.geometry import Grid
from resize_pos.core.notes import Note
from resize_pos.core.operations import ScaleQueries
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.attention_weights import AttentionLayout, blocks, find_block
from resize_pos.families.family import Family, Role
from resize_pos.families.tables import Action, PositionTable, Step

_FLAG = "--attention-scale"
_PLAIN = {1: Layout.parse("l"), 2: Layout.parse("l d")}
QUERIES = Family(
    "attention-queries",
    "the weights that make the queries of self-attention",
    Role.QUERY,
    r".*",
    tuple(_PLAIN.values()),
)
_RELATIVE = frozenset({Role.RELATIVE, Role.DISTANCE})
# What may change although a table of the image keeps its number of rows.
_SAME_TOKENS = frozenset({Role.ABSOLUTE, Role.KERNEL, Role.DERIVED})
# Between a tower's own name and its table: `vit.embeddings.position_embeddings`.
_INNER = frozenset({"embeddings", "embedding", "encoder", "position_embedding", "patch_embed"})


def scale_steps(steps: Sequence[Step], tensors: Mapping[str, TensorInfo]) -> tuple[Step, ...]:
    """Plan the scaling for every tower whose absolute table changes; refuse unknown attention."""
    found: dict[str, Step] = {}
    for step in steps:
        before, after = tokens(step)
        if step.table.role is not Role.ABSOLUTE or before == after:
            continue
        if any(other.table.role in _RELATIVE for other in steps):
            raise _adds_relative()
        for planned in _of_tower(step, tensors, before, after):
            twin = found.setdefault(planned.name, planned)
            if twin.operation != planned.operation:
                raise TableError(
                    f"{_FLAG}: {planned.name} belongs to two tables that change differently.",
                    hint=f"leave {_FLAG} out.",
                )
    return tuple(found.values())


def require_scaled(steps: Sequence[Step], edits: Sequence[ConfigEdit]) -> None:
    """Refuse a run that would change something and leave the flag without effect.

    Where no step scales queries, only two plans pass. In one, nothing changes at all. In the other,
    a table of the image keeps its number of rows, so that the factor is one.
    """
    altered = [step for step in steps if step.action not in (Action.KEEP, Action.DROP)]
    if not (altered or edits) or any(step.action is Action.SCALE for step in steps):
        return
    if any(step.table.role in _RELATIVE for step in steps):
        raise _adds_relative()
    others = [step.name for step in altered if step.table.role not in _SAME_TOKENS]
    if not others and any(step.table.role is Role.ABSOLUTE for step in steps):
        return
    changed = others or [step.name for step in altered] or [edit.file for edit in edits]
    raise TableError(
        f"{_FLAG}: {changed[0]} changes, but no learned absolute table of an image gets another "
        "number of rows, and only such a table says how many tokens attention sees.",
        hint=f"leave {_FLAG} out.",
    )


def scale_notes(steps: Sequence[Step]) -> Iterator[Note]:
    """Say why no queries are scaled, or which tables that change have nothing to do with it."""
    altered = [step for step in steps if step.action not in (Action.KEEP, Action.DROP)]
    if not any(step.action is Action.SCALE for step in steps):
        reason = (
            "the number of tokens stays, so the factor is 1"
            if altered
            else "no table of this file changes"
        )
        yield Note(f"{_FLAG} changes nothing here: {reason}.")
        return
    for step in altered:
        if step.table.role is Role.SEQUENCE:
            yield Note(f"{_FLAG} does not apply to {step.name}: it scales attention over images.")


def tokens(step: Step) -> tuple[int, int]:
    """Return the rows of a step's table before and after."""
    layout = step.table.layout
    return layout.rows(step.table.tensor.shape), layout.rows(step.target_shape)


def query_steps(
    step: Step, tensors: Mapping[str, TensorInfo], block: AttentionLayout
) -> Iterator[Step]:
    """Plan the scaling of one block."""
    before, after = tokens(step)
    factor = math.sqrt(math.log(after) / math.log(before))
    width = tensors[block.projections[0]].shape[-1]
    for name in block.queries:
        info = tensors.get(name)
        if info is None:
            continue
        rows = width if info.shape[0] == 3 * width else info.shape[0]
        evidence = (f"{step.table.name} goes from {before} to {after} rows",)
        table = PositionTable(
            info, QUERIES, "", _PLAIN[len(info.shape)], Grid(1, before), evidence=evidence
        )
        reason = f"{before} → {after} tokens"
        operation = ScaleQueries(factor, rows)
        yield Step(table, Action.SCALE, Grid(1, after), info.shape, operation, reason)


def _of_tower(
    step: Step, tensors: Mapping[str, TensorInfo], before: int, after: int
) -> Iterator[Step]:
    table = step.table
    if table.layout.has_time or table.frames > 1 or step.frames > 1:
        raise _unknown(table, "its rows also count frames, and attention may not see all of them")
    if min(before, after) < 2:
        raise _unknown(table, f"it goes from {before} to {after} rows, and one token has no scale")
    width = dict(zip(table.layout.terms, table.tensor.shape, strict=False)).get("d", 0)
    found = find_block(table.name, tensors, width)
    if found is None or not _same_tower(table.name, found[1]):
        raise _unknown(table, "the names of its attention weights are not known")
    names = sorted(tensors)
    for block in blocks(*found, tensors):
        _require_plain(table, block, tensors, names, width)
        yield from query_steps(step, tensors, block)


def _same_tower(table: str, base: str) -> bool:
    """Whether only names of parts, not of a tower, lie between the table and its blocks."""
    between = table.removeprefix(base).removesuffix(".weight").split(".")[:-1]
    return set(between) <= _INNER


def _require_plain(
    table: PositionTable,
    block: AttentionLayout,
    tensors: Mapping[str, TensorInfo],
    names: Sequence[str],
    width: int,
) -> None:
    """Refuse a block with unknown parts: a norm of the queries would undo the scale."""
    known = {*block.projections, *(block.module + name for name in block.others)}
    for index in range(bisect_left(names, block.module), len(names)):
        name = names[index]
        if not name.startswith(block.module):
            break
        if name not in known:
            raise _unknown(table, f"{name} is no part of plain attention")
        if name in block.queries and not DTYPES[tensors[name].dtype].floating:
            raise _unknown(table, f"{name} is stored as {tensors[name].dtype}")
    for name in block.projections:
        shape = tensors[name].shape if name in tensors else ()
        if len(shape) != 2 or shape[1] != width or shape[0] % width:
            raise _unknown(table, f"{name} is {list(shape)}, not {width} wide like the table")


def _adds_relative() -> TableError:
    return TableError(
        f"{_FLAG}: this model adds a relative table to its attention, and a scale on the "
        "queries would not reach that part.",
        hint=f"leave {_FLAG} out.",
    )


def _unknown(table: PositionTable, why: str) -> TableError:
    return TableError(
        f"{_FLAG}: the queries of {table.name} cannot be scaled: {why}.",
        hint=f"leave {_FLAG} out; the tables are resized without it.",
    )
