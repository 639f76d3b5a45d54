"""Verify an output: compare it with its source, load it into a model, show it images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from resize_pos.containers.metering import Meter
from resize_pos.containers.sources import open_source
from resize_pos.core.errors import UsageError
from resize_pos.core.request import Request
from resize_pos.report.verify_report import Verified
from resize_pos.verify.against_source import verify_output
from resize_pos.verify.output_plan import of_output


def verify(
    output: Path,
    against: Path | None,
    request: Request,
    *,
    trained: bool = False,
    model: str | None = None,
    model_args: Iterable[str] = (),
    images: Path | None = None,
) -> Verified:
    """Do every check that is asked for.

    The request states what is known: `from_…` about the source, `to_…` about the output. `trained`:
    the output was trained on after the resize.
    """
    if against is None and model is None and images is None:
        raise UsageError(
            "nothing to verify against.", hint="pass --against SOURCE or --model timm:NAME."
        )
    if trained and against is None:
        raise UsageError(
            "--trained says how CHECKPOINT differs from its source, but no source is stated.",
            hint="pass --against SOURCE, too.",
        )
    metered = Meter.of(output, against)
    done = _verified(output, against, request, trained, model, tuple(model_args), images)
    return replace(done, traffic=metered.used())


def _verified(
    output: Path,
    against: Path | None,
    request: Request,
    trained: bool,
    model: str | None,
    model_args: tuple[str, ...],
    images: Path | None,
) -> Verified:
    ours = open_source(output)
    source = None if against is None else open_source(against)
    if images is not None and (model is None or source is None):
        raise UsageError(
            "--images compares two checkpoints in a model.",
            hint="pass --model timm:NAME and --against SOURCE, too.",
        )
    same = source is not None and source.path.resolve() == ours.path.resolve()
    if same and model is None:  # in a model, a file that agrees with itself is a control
        raise UsageError(
            f"{output} and --against {against} are the same file, so there is nothing to compare.",
            hint="name the converted file first, and the one that it was made from after "
            "--against: resize-pos verify OUTPUT --against SOURCE",
        )
    held = None if source is None else verify_output(ours, source, request, trained=trained)
    if model is None:
        return Verified(ours.path, held)
    from resize_pos.verify.images import image_files, probe
    from resize_pos.verify.models import ModelSpec, forward_once, load_strictly

    files = () if images is None else image_files(images)
    spec = ModelSpec.parse(model, model_args)
    loaded = load_strictly(ours, spec, of_output(request))
    ran = forward_once(loaded, spec.name)
    if source is None or not files:
        return Verified(ours.path, held, ran)
    # The size that was stated for the model is that of the output.
    original = load_strictly(source, replace(spec, size=None), request, own_config=True)
    return Verified(ours.path, held, ran, probe(original, loaded, files))
