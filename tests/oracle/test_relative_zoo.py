"""Every timm model with relative tables: shapes at larger, smaller and non-square sizes."""

from __future__ import annotations

import re

import pytest
import timm

from tests.oracle.sweeps import Pair, Shapes, Tally, generic, shapes_of

TABLES = re.compile(
    r"relative_position_bias_table$|rel_pos_[hw]$|_rel$|attention_biases$|\.pos_emb$"
)
LINEAGES = re.compile(
    r"beit|swin_(?!v2|cr)|maxvit|maxxvit|coatn|gcvit|levit|efficientformer|efficientvit_m|mvitv2|"
    r"samvit|botnet|halo|lambda|lamhalo"
)
# A refusal has to give one of these reasons; anything else is a gap.
REASONS = ("not a multiple of N, which its windows need",)  # GCViT, MaxViT: they would not run


def shapes(name: str, size: int | Pair | None = None) -> Shapes:
    options = {} if size is None else {"img_size": size}
    return shapes_of(lambda: timm.create_model(name, **options))


def native_size(name: str) -> int:
    config = timm.get_pretrained_cfg(name)
    return 224 if config is None else int(config.input_size[-1])


def sizes(side: int) -> tuple[Pair, ...]:
    return (side * 2, side * 2), (side, side * 2), (side // 2, side // 2), (256, 320)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a thousand models' own code
def test_the_plan_predicts_every_shape() -> None:
    tally, seen = Tally(), set()
    for name in filter(LINEAGES.search, timm.list_models()):
        source, side = shapes(name), native_size(name)
        key = side, frozenset((generic(key), shape) for key, shape in source.items())
        if key in seen or not any(TABLES.search(key) for key in source):
            tally.alike += [name] if key in seen else []
            continue
        seen.add(key)
        for size in sizes(side):
            # MSRA's EfficientViT takes one number only.
            one = size[0] if name.startswith("efficientvit_m") and size[0] == size[1] else size
            try:
                target = shapes(name, one)
            except Exception:
                continue  # the library itself does not build it
            tally.record(f"{name} {size[0]}x{size[1]}", source, target, size)
    print(f"\ntimm {timm.__version__}, relative tables: {tally}")  # noqa: T201
    assert len(tally.right) > 100
    assert not tally.wrong
    assert not tally.suspects
    assert not tally.unexplained(REASONS)
