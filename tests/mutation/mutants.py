"""Small changes to a module's source, one at a time, as a slip of the hand would make them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """A changed module."""

    line: int
    change: str
    tree: ast.Module


def mutants(text: str) -> Iterator[Mutant]:
    """Make every mutant of a module. Docstrings, annotations and error texts are left alone.

    So are the decorators of classes: whether an object can be changed or compared has no effect on
    a program that does neither.
    """
    tree = ast.parse(text)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    decorators = [each for node in classes for each in node.decorator_list]
    passed = {part for each in decorators for part in ast.walk(each)}
    for number, node in enumerate(ast.walk(tree)):
        if node in passed:
            continue
        for words, apply in _changes(node):
            changed = copy.deepcopy(tree)
            target = _node(changed, number)
            before = ast.unparse(target)
            apply(target)
            ast.fix_missing_locations(changed)
            line = getattr(node, "lineno", 0)
            yield Mutant(line, f"{words}: {before[:70]} → {ast.unparse(target)[:70]}", changed)


def _node(tree: ast.Module, number: int) -> ast.AST:
    for place, node in enumerate(ast.walk(tree)):
        if place == number:
            return node
    raise AssertionError


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield "comparison", _compare
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_type(node):
        yield "arithmetic", _calculate
    if isinstance(node, ast.BoolOp):
        yield "and/or", _join
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", _affirm
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "condition", _negate
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "number", _count
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "bool", _flip


def _is_type(node: ast.BinOp) -> bool:
    """Whether it is a union of types, as in `isinstance(x, A | B)` or an alias."""
    return isinstance(node.op, ast.BitOr) and isinstance(node.right, ast.Name | ast.Constant)


def _compare(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[0] = _COMPARISONS[type(node.ops[0])]()


def _calculate(node: ast.AST) -> None:
    assert isinstance(node, ast.BinOp)
    node.op = _ARITHMETIC[type(node.op)]()


def _join(node: ast.AST) -> None:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _affirm(node: ast.AST) -> None:
    assert isinstance(node, ast.UnaryOp)
    node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)


def _negate(node: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.IfExp | ast.While)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _count(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    node.value += 1


def _flip(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant)
    node.value = not node.value
