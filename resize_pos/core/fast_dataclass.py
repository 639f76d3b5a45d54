"""Dataclasses whose classes are created quickly.

`dataclasses` compiles up to ten functions for every class; for some hundred classes that was half
of the time of `inspect`. Here the methods are shared, fields are described when somebody asks for
them, and a constructor is compiled only for a class with many instances. 120 classes take 3.5 ms
(93 ms with `dataclasses`), and their first instances 0.6 ms (30 ms if each constructor is
compiled). `msgspec.Struct` takes 4 ms, and its import 35 ms.
For a type checker, and for `fields`, `replace` and `asdict`, the classes are dataclasses.
A class may extend one of these classes, and `kw_only` makes its fields arguments by name only.
`__post_init__` is not supported, and refused when the class is created.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_ABSENT: Any = object()
_NO_FACTORY: Any = dataclasses.MISSING
_UNFILLED = (type(dataclasses.MISSING), dataclasses.Field)
_CALLS_BEFORE_COMPILING = 16
_DECLARED = "__declared_fields__"  # a class made here has them, for the classes that extend it
_SPECIAL = ("ClassVar", "InitVar", "KW_ONLY")  # annotations that make no ordinary field


class _Shared:
    """What every class gets; `__dataclass_fields__` names its fields."""

    __slots__ = ()
    __dataclass_fields__: dict[str, dataclasses.Field[Any]]

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if _alike(self, other) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __lt__(self, other: object) -> bool:
        return _values(self) < _values(other) if _alike(self, other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return _values(self) <= _values(other) if _alike(self, other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return _values(self) > _values(other) if _alike(self, other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return _values(self) >= _values(other) if _alike(self, other) else NotImplemented

    def __repr__(self) -> str:
        parts = self.__dataclass_fields__.values()
        shown = [f"{part.name}={getattr(self, part.name)!r}" for part in parts if part.repr]
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.__dataclass_fields__, state, strict=True):
            object.__setattr__(self, name, value)


_ORDERED = ("__lt__", "__le__", "__gt__", "__ge__")
_FROZEN = ("__setattr__", "__delattr__", "__getstate__", "__setstate__")


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Empty:
    """Has the parameters that all classes share."""


_PARAMETERS = _Empty.__dataclass_params__  # type: ignore[attr-defined]


def _alike(one: object, other: object) -> bool:
    return one.__class__ is other.__class__


def _values(instance: Any) -> Any:
    """Give what is compared: all values as a tuple, or the only one."""
    return instance.__values__(instance)


def _make(cls: type[Any], methods: Sequence[str], *, unhashable: bool, kw_only: bool) -> type[Any]:
    if hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__qualname__}: __post_init__ would not be called; use a classmethod")
    own: dict[str, Any] = {name: _Shared.__dict__[name] for name in methods}
    own |= {"__hash__": None} if unhashable else {}
    if _is_plain(cls):
        return _plain_class(cls, own, kw_only=kw_only)
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=True, kw_only=kw_only
    )(cls)
    parts = {part.name: part for part in dataclasses.fields(made)}
    by_name = {part.name for part in parts.values() if part.kw_only}
    made.__dataclass_fields__ = parts  # without what is no field: ClassVar
    constructor = _Constructor(parts, own, by_name)
    constructor.__set_name__(made, "__init__")
    own |= {"__init__": constructor, "__values__": _getter(tuple(parts))}
    for name, value in own.items():
        if name in ("__init__", "__values__", "__hash__") or name not in cls.__dict__:
            setattr(made, name, value)
    return made  # type: ignore[no-any-return]


def _is_plain(cls: type[Any]) -> bool:
    """Tell whether the class can be made here; otherwise it is left to `dataclasses`.

    It has ordinary fields only, and inherits nothing but a class that was made here.
    """
    kinds = cls.__annotations__.values()
    if cls.__doc__ is None or "__slots__" in cls.__dict__ or len(cls.__bases__) != 1:
        return False
    (base,) = cls.__bases__
    if base is not object and _DECLARED not in base.__dict__:
        return False
    if not all(kind.__class__ is str for kind in kinds):
        return False
    text = "\n".join(kinds)
    return not any(word in text for word in _SPECIAL)


def _plain_class(cls: type[Any], own: dict[str, Any], *, kw_only: bool) -> type[Any]:
    """Make the class again, with slots; its fields are described when somebody asks for them."""
    space = dict(cls.__dict__)
    annotations: dict[str, str] = cls.__annotations__
    values = {name: space.pop(name, dataclasses.MISSING) for name in annotations}
    by_name = set(annotations if kw_only else ())
    for name, value in values.items():
        if value.__class__.__hash__ is None:
            raise ValueError(f"{cls.__qualname__}.{name}: use a default_factory for {value!r}")
        if value.__class__ is dataclasses.Field and value.kw_only is not dataclasses.MISSING:
            (by_name.add if value.kw_only else by_name.discard)(name)
    slots = tuple(annotations)
    base: _Fields | None = cls.__bases__[0].__dict__.get(_DECLARED)
    if base is not None:
        slots = tuple(name for name in annotations if name not in base.annotations)
        by_name |= base.by_name.difference(annotations)
        annotations = base.annotations | annotations  # a field that is declared again stays there
        values = base.values | values
    fields = _Fields(values, annotations, by_name)
    del space["__dict__"], space["__weakref__"]
    space = {**own, **space} | {name: own[name] for name in own if name == "__hash__"}
    space |= {
        "__qualname__": cls.__qualname__,
        "__slots__": slots,
        "__match_args__": tuple(
            name for name in values if name not in by_name and _of_constructor(values[name])
        ),
        _DECLARED: fields,
        "__dataclass_fields__": fields,
        "__dataclass_params__": _PARAMETERS,
        "__values__": _getter(tuple(values)),
        "__init__": _Constructor(values, own, by_name),
    }
    return type(cls.__name__, cls.__bases__, space)


def _of_constructor(value: object) -> bool:
    return not isinstance(value, dataclasses.Field) or value.init


def _only_by_name(value: Any) -> dataclasses.Field[Any]:
    described: dataclasses.Field[Any] = (
        value if isinstance(value, dataclasses.Field) else dataclasses.field(default=value)
    )
    described.kw_only = True
    return described


def _usual(field: dataclasses.Field[Any]) -> bool:
    return field.init and field.default_factory is dataclasses.MISSING


def _getter(names: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


class _Fields:
    """Stands for `__dataclass_fields__` until somebody asks for it."""

    __slots__ = ("annotations", "by_name", "cls", "values")

    def __init__(
        self, values: dict[str, Any], annotations: dict[str, str], by_name: set[str]
    ) -> None:
        self.values = values  # of each field: its default or MISSING, or its description
        self.annotations = annotations
        self.by_name = by_name

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.cls = owner

    def __get__(self, instance: object, owner: type[Any]) -> dict[str, Any]:
        given = {n: value for n, value in self.values.items() if value is not dataclasses.MISSING}
        given |= {name: _only_by_name(self.values[name]) for name in self.by_name}
        space = {**given, "__annotations__": self.annotations, "__doc__": ""}
        like: Any = type(self.cls.__name__, (), space)
        like.__module__ = self.cls.__module__
        like = dataclasses.dataclass(init=False, repr=False, eq=False)(like)
        fields: dict[str, Any] = like.__dataclass_fields__
        self.cls.__dataclass_fields__ = fields
        return fields


class _Constructor:
    """Stands for a class's `__init__` until it was called a few times.

    Compiling one takes as long as filling in some thirty instances by hand, and most classes of a
    run have fewer. A call with wrong arguments compiles it at once, for its errors.
    """

    __slots__ = ("by_name", "calls", "cls", "frozen", "name", "values")

    def __init__(self, values: dict[str, Any], own: Container[str], by_name: set[str]) -> None:
        # Of each field: its default or MISSING; its description, if there is more to say.
        self.values = {
            name: value.default if isinstance(value, dataclasses.Field) and _usual(value) else value
            for name, value in values.items()
        }
        self.by_name = by_name
        self.frozen = "__setattr__" in own
        self.calls = 0 if all(map(_of_constructor, values.values())) else _CALLS_BEFORE_COMPILING

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.cls = owner
        self.name = f"{owner.__qualname__}.{name}"

    def __get__(self, instance: object, owner: type[Any]) -> Callable[..., None]:
        self.calls += 1
        if instance is not None and self.calls < _CALLS_BEFORE_COMPILING:
            return partial(self._fill, instance)
        bound: Callable[..., None] = self._compiled().__get__(instance, owner)
        return bound

    def _fill(self, instance: object, /, *given: Any, **named: Any) -> None:
        values = dict(self.values)
        places = [name for name in values if name not in self.by_name] if self.by_name else values
        first = dict(zip(places, given, strict=False))
        if len(given) == len(first) and named.keys() <= values.keys() - first.keys():
            values |= first | named
            if not any(isinstance(value, _UNFILLED) for value in values.values()):
                put: Any = object.__setattr__ if self.frozen else setattr
                for name, value in values.items():
                    put(instance, name, value)
                return
        self._compiled()(instance, *given, **named)

    def _compiled(self) -> Any:
        function: Any = _constructor(self.cls, self.values, self.by_name, frozen=self.frozen)
        function.__qualname__ = self.name
        self.cls.__init__ = function
        return function


def _constructor(
    cls: type[Any], values: dict[str, Any], by_name: Container[str], *, frozen: bool
) -> Callable[..., None]:
    parameters: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    scope: dict[str, Any] = {"_absent": _ABSENT}
    for name, default in values.items():
        value, factory, given = name, _NO_FACTORY, True
        place = named if name in by_name else parameters
        if isinstance(default, dataclasses.Field):
            factory, given, default = default.default_factory, default.init, default.default
        if not given:
            scope[f"_default_{name}"] = default
            value = f"_default_{name}"
        elif factory is not _NO_FACTORY:
            scope[f"_make_{name}"] = factory
            place.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        elif default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = default
            place.append(f"{name}=_default_{name}")
        else:
            place.append(name)
        if frozen:  # the slot's own setter takes two thirds of the time of object.__setattr__
            scope[f"_set_{name}"] = getattr(cls, name).__set__
            lines.append(f" _set_{name}(self, {value})\n")
        else:
            lines.append(f" self.{name} = {value}\n")
    parameters += ["*", *named] if named else []
    text = f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines) or ' pass'}"
    exec(text, scope)  # it is made of nothing but the names of fields
    made: Callable[..., None] = scope["__init__"]
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *,
        slots: bool,
        frozen: bool = False,
        eq: bool = True,
        order: bool = False,
        kw_only: bool = False,
    ) -> Callable[[type[Any]], type[Any]]:
        """Do what `dataclasses.dataclass` does for a class that has slots."""
        if not slots:
            raise TypeError("for a class without slots there is dataclasses.dataclass")
        methods = ["__repr__"]
        methods += ["__eq__"] if eq else []
        methods += ["__hash__"] if eq and frozen else []
        methods += _ORDERED if order else []
        methods += _FROZEN if frozen else []
        return lambda cls: _make(cls, methods, unhashable=eq and not frozen, kw_only=kw_only)
