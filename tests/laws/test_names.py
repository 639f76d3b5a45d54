"""One word for one thing: a name of a class means one class, and no well-known name is reused."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "resize_pos"

# Names that every Python programmer takes for the class of the standard library.
TAKEN = {
    "Any",
    "Callable",
    "Dict",
    "Iterator",
    "List",
    "Mapping",
    "Path",
    "Sequence",
    "Set",
    "Tuple",
}


def defined() -> dict[str, set[str]]:
    """List every public class and type alias of a module, with the modules that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in _type_names(node):
                if not name.startswith("_"):
                    found[name].add(module)
    return found


def _type_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return [name for name in names if name[0].isupper() and not name.isupper()]
    return []


def test_no_two_classes_share_a_name() -> None:
    shared = {name: sorted(modules) for name, modules in defined().items() if len(modules) > 1}
    assert not shared


def test_no_class_shadows_a_well_known_name() -> None:
    assert not defined().keys() & TAKEN


def test_the_law_sees_classes_and_aliases() -> None:
    names = defined()
    assert names["Container"] == {"containers/base.py"}
    assert names["KeyPath"] == {"core/json_edit.py"}
