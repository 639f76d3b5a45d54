"""What is left to do after a conversion: load the weights, edit configs, choose learning rates."""

from __future__ import annotations

from resize_pos.configs.advice import ConfigAdvice
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.families.family import Role
from resize_pos.report.loading import UNKNOWN_NAME, Loading, call, listed, loading_code, text_code
from resize_pos.report.report import Report, Status

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class ToDo:
    """One thing to do, and the code for it."""

    words: str
    code: str = ""


def tasks(report: Report) -> tuple[ToDo, ...]:
    """List what the user has to do with the output of a run."""
    if report.status is not Status.RESIZED:
        return ()
    lines = [str(advice) for advice in still_to_change(report)]
    words = "Change these values; the weights do not hold them:"
    configs = ToDo(words, "\n".join(lines)) if lines else None
    return tuple(task for task in (configs, loading_task(report)) if task is not None)


def still_to_change(report: Report) -> tuple[ConfigAdvice, ...]:
    """List the values that the user has to change and that no code below passes."""
    passed = loading_task(report) is not None
    return tuple(each for each in report.config_advice if not (passed and _in_the_call(each)))


def _in_the_call(advice: ConfigAdvice) -> bool:
    """Return whether the loading code passes the value."""
    return (advice.library, advice.key) in _PASSED


# What the loading code states itself: for timm every size, for torchvision that of the image.
_PASSED = frozenset(
    {
        ("timm", "img_size"),
        ("timm", "patch_size"),
        ("timm", "window_size"),
        ("torchvision", "image_size"),
    }
)


def loading_task(report: Report) -> ToDo | None:
    """Return the code that loads the output, and below it the groups of an optimizer."""
    loading = loading_code(report) if report.status is Status.RESIZED else None
    if loading is None:
        return None
    groups = _learning_rates(report)
    if groups is None:
        return ToDo(f"Load it{_placeholder(loading)}:", str(loading))
    return ToDo(f"Load it and train on{_placeholder(loading)}:", str(loading + groups))


def _placeholder(loading: Loading) -> str:
    named = text_code(UNKNOWN_NAME) in str(loading)
    return f" ({UNKNOWN_NAME}: the name of your model)" if named else ""


def _learning_rates(report: Report) -> Loading | None:
    """Give the interpolated tables a learning rate of their own."""
    names = report.fine_tune.parameters
    image = any(table.step.table.role is Role.ABSOLUTE for table in report.tables)
    if report.holds_graph or not image or not 0 < len(names) <= _MOST_NAMED:
        return None
    made = call(
        "groups = resize_pos.param_groups",
        ["model", *listed(names), "lr=1e-5", "position_lr_scale=10"],
    )
    return Loading(("import resize_pos",), (made,))
