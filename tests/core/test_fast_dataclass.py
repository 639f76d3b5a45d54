"""Classes of our own making do what those of `dataclasses` do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from resize_pos.core.fast_dataclass import dataclass as quick


def classes(make: Callable[..., Any], **options: bool) -> Any:
    @make(slots=True, **options)
    class Point:
        """A place."""

        x: int
        y: int = 7
        tags: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)
        count: int = dataclasses.field(default=0, init=False)

        @property
        def total(self) -> int:
            return self.x + self.y

    Point.__qualname__ = "Point"
    return Point


MAKERS = {"quick": quick, "standard": dataclasses.dataclass}


def outcome(action: Callable[[Any], object], cls: Any) -> object:
    try:
        return action(cls)
    except Exception as error:
        return type(error), str(error).replace("test_frozen.", "")


ACTIONS: dict[str, Callable[[Any], object]] = {
    "positional": lambda c: repr(c(1, 2, ["a"])),
    "keywords": lambda c: repr(c(y=3, x=1)),
    "defaults": lambda c: (c(1).y, c(1).tags, c(1).secret, c(1).total),
    "own default each": lambda c: c(1).tags is c(1).tags,
    "by name only": lambda c: repr(c(1, loud=True, marks=["a"])),
    "by name only, twice": lambda c: repr(dataclasses.replace(c(1, loud=True), x=2)),
    "wide": lambda c: (c(1).wide, c(1, wide=False).wide),
    "missing": lambda c: c(),
    "unknown": lambda c: c(1, z=2),
    "too many": lambda c: c(1, 2, [], "", 5),
    "equal": lambda c: (c(1) == c(1), c(1) == c(2), c(1) != c(2), c(1) == (1, 7, [], "s")),
    "hash of a list": lambda c: type(hash(c(1))),
    "order": lambda c: (c(1) < c(2), c(2) <= c(2), c(1) > c(2), c(2) >= c(1), sorted([c(2), c(1)])),
    "order against another": lambda c: c(1) < 3,
    "hash": lambda c: len({hash(one) for one in (c(1, 2, ()), c(1, 2, ()))}),
    "assign": lambda c: setattr(c(1), "x", 2),
    "delete": lambda c: delattr(c(1), "x"),
    "slots": lambda c: hasattr(c(1), "__dict__"),
    "replace": lambda c: repr(dataclasses.replace(c(1), y=9)),
    "fields": lambda c: [
        (f.name, f.type, f.repr, f.init, f.kw_only) for f in dataclasses.fields(c)
    ],
    "asdict": lambda c: dataclasses.asdict(c(1, tags=["a"])),
    "is one": dataclasses.is_dataclass,
    "copied": lambda c: copy.copy(c(1, 2)) == c(1, 2),
    "copied deeply": lambda c: copy.deepcopy(c(1, 2)) == c(1, 2),
    "match": lambda c: c.__match_args__,
    "signature": lambda c: list(inspect.signature(c).parameters),
    "doc": lambda c: c.__doc__,
}


KINDS: dict[str, dict[str, bool]] = {
    "frozen": {"frozen": True},
    "frozen, unique": {"frozen": True, "eq": False},
    "frozen, ordered": {"frozen": True, "order": True},
    "plain": {},
    "unique": {"eq": False},
}


def small(make: Callable[..., Any], **options: bool) -> Any:
    """Fields of the constructor only: the first instances are made without compiling one."""

    @make(slots=True, **options)
    class Small:
        """A place."""

        x: int
        y: int = 7
        tags: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)

        @property
        def total(self) -> int:
            return self.x + self.y

    return Small


class Base:
    """Brings an attribute; a class with a base is described by `dataclasses`."""

    __slots__ = ("seen",)


def derived(make: Callable[..., Any], **options: bool) -> Any:
    @make(slots=True, **options)
    class Derived(Base):
        """A place."""

        x: int
        y: int = 7
        tags: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)

        @property
        def total(self) -> int:
            return self.x + self.y

    return Derived


def extended(make: Callable[..., Any], **options: bool) -> Any:
    """The base has fields that are given by name only, so those without a default may follow."""

    @make(slots=True, kw_only=True, **options)
    class Options:
        """How it is drawn."""

        loud: bool = False
        marks: list[str] = dataclasses.field(default_factory=list)
        wide: bool = False

    @make(slots=True, **options)
    class Extended(Options):
        """A place."""

        x: int
        y: int = 7
        tags: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)
        wide: bool = dataclasses.field(default=True, kw_only=True)

        @property
        def total(self) -> int:
            return self.x + self.y

    return Extended


def extended_with_a_constant(make: Callable[..., Any], **options: bool) -> Any:
    """The derived class is one that is left to `dataclasses`; its base is not."""

    @make(slots=True, kw_only=True, **options)
    class Options:
        """How it is drawn."""

        loud: bool = False

    @make(slots=True, **options)
    class Constant(Options):
        """A place."""

        limit: ClassVar[int] = 3
        x: int
        y: int = 7
        tags: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)

        @property
        def total(self) -> int:
            return self.x + self.y

    return Constant


SHAPES = (classes, small, derived, extended, extended_with_a_constant)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", ACTIONS)
def test_they_behave_like_the_standard_ones(action: str, kind: str) -> None:
    for make_class, before in itertools.product(SHAPES, (0, 20)):
        outcomes = []
        for make in MAKERS.values():
            cls = make_class(make, **KINDS[kind])
            for number in range(before):  # by then the constructor is compiled
                cls(number)
            outcomes.append(repr(outcome(ACTIONS[action], cls)))
        quickly, standard = outcomes
        assert quickly == standard, (make_class, before)


def test_annotations_that_are_no_fields_are_left_to_the_standard_library() -> None:
    @quick(frozen=True, slots=True)
    class Counted:
        """Has a number of its class."""

        limit: ClassVar[int] = 3
        x: int

    assert (Counted(1).limit, [each.name for each in dataclasses.fields(Counted)]) == (3, ["x"])


def test_a_default_that_all_instances_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @quick(slots=True)
        class Shared:
            """Would share its list."""

            x: list[int] = []  # noqa: RUF012


def test_a_class_is_extended() -> None:
    @quick(frozen=True, slots=True)
    class More(Sent):
        """Has one field more."""

        size: int = 0

    assert More("a", (1,), 2) == More("a", (1,), size=2) != More("a")
    assert [each.name for each in dataclasses.fields(More)] == ["name", "numbers", "size"]


@quick(frozen=True, slots=True)
class Sent:
    """Found by pickle under its name."""

    name: str
    numbers: tuple[int, ...] = ()


def test_they_travel_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Sent("a", (1, 2)))) == Sent("a", (1, 2))


def test_no_attribute_can_be_added() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sent("a").other = 1  # type: ignore[attr-defined]


def test_other_kinds_of_classes_are_left_to_the_standard_library() -> None:
    with pytest.raises(TypeError):
        quick(slots=False)


def test_a_method_that_would_never_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="__post_init__ would not be called"):

        @quick(slots=True)
        class Checked:
            x: int

            def __post_init__(self) -> None:
                raise AssertionError
