"""Frozen dataclasses that are made quickly.

`dataclasses` compiles six functions for every frozen class; for some hundred classes that was half
of what a look at a checkpoint costs. Here one is compiled, the constructor, and the others are
shared. For a type checker, and for `fields`, `replace` and `asdict`, the classes are dataclasses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_ABSENT: Any = object()


class _Shared:
    """What every class gets; `__dataclass_fields__` names its fields."""

    __slots__ = ()
    __dataclass_fields__: dict[str, dataclasses.Field[Any]]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        parts = self.__dataclass_fields__.values()
        shown = [f"{part.name}={getattr(self, part.name)!r}" for part in parts if part.repr]
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> tuple[Any, ...]:
        return _values(self)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.__dataclass_fields__, state, strict=True):
            object.__setattr__(self, name, value)


_COMPARED = ("__eq__", "__hash__")
_ALWAYS = ("__repr__", "__setattr__", "__delattr__", "__getstate__", "__setstate__")


def _values(instance: Any) -> tuple[Any, ...]:
    return tuple([getattr(instance, name) for name in instance.__dataclass_fields__])


def _make(cls: type[Any], methods: tuple[str, ...]) -> type[Any]:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    made.__init__ = _constructor(made)
    for name in methods:
        if name not in cls.__dict__:
            setattr(made, name, _Shared.__dict__[name])
    return made  # type: ignore[no-any-return]


def _constructor(cls: Any) -> Callable[..., None]:
    parameters, lines = [], []
    scope: dict[str, Any] = {"_set": object.__setattr__, "_absent": _ABSENT}
    for part in dataclasses.fields(cls):
        name = value = part.name
        if part.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = part.default_factory
            parameters.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        elif part.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = part.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f" _set(self, {name!r}, {value})\n")
    text = f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines) or ' pass'}"
    exec(text, scope)  # it is made of nothing but the names of fields
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *, frozen: bool, slots: bool, eq: bool = True
    ) -> Callable[[type[Any]], type[Any]]:
        """Do what `dataclasses.dataclass` does for a class that is frozen and has slots."""
        if not (frozen and slots):
            raise TypeError("for other classes than frozen ones with slots there is dataclasses")
        methods = _ALWAYS + _COMPARED if eq else _ALWAYS
        return lambda cls: _make(cls, methods)
