"""Every timm model that takes an image size: the plan predicts all shapes at another size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import timm

from tests.oracle.sweeps import Shapes, Tally, generic, shapes_of, whole_patches

# A refusal has to give one of these reasons; anything else is a gap.
REASONS: tuple[str, ...] = ()
MULTIPLES = (2.0, 1.5, 1.25)  # of the native size, until the model takes one


def shapes(name: str, size: int) -> Shapes:
    return shapes_of(lambda: timm.create_model(name, img_size=size))


def native_size(name: str) -> int:
    config = timm.get_pretrained_cfg(name)
    return 224 if config is None else int(config.input_size[-1])


def sized_models() -> Iterator[tuple[str, int, Shapes]]:
    for name in timm.list_models():
        size = native_size(name)
        try:
            yield name, size, shapes(name, size)
        except TypeError:  # it has no img_size
            continue


def resized(name: str, size: int, source: Shapes) -> tuple[int, Shapes]:
    kernel = source.get("patch_embed.proj.weight", ())
    size = whole_patches(size, kernel[-1] if len(kernel) == 4 else None)
    for multiple in MULTIPLES:
        to = int(size * multiple)
        try:
            return to, shapes(name, to)
        except (ValueError, AssertionError, RuntimeError):
            continue
    raise AssertionError(f"{name} takes none of the sizes tried")


def signature(name: str, size: int, source: Shapes) -> object:
    """Two models of one module whose tensors agree but for depth change alike."""
    module = timm.models.model_entrypoint(name).__module__
    return module, size, frozenset((generic(key), shape) for key, shape in source.items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a thousand models' own code
def test_the_plan_predicts_every_shape() -> None:
    tally = Tally()
    known: dict[object, tuple[int, Shapes]] = {}
    for name, size, source in sized_models():
        key = signature(name, size, source)
        if key not in known:
            known[key] = resized(name, size, source)
            to, target = known[key]
            tally.record(name, source, target, (to, to))
        else:
            tally.alike.append(name)
    print(f"\ntimm {timm.__version__}: {tally}")  # noqa: T201
    assert len(tally.right) > 300
    assert not tally.wrong
    assert not tally.suspects
    assert not tally.unexplained(REASONS)
