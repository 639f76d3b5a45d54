"""What the user asks for, parsed and checked once; the same value serves the CLI and the API."""

from __future__ import annotations

from dataclasses import replace

from resize_pos.core.conventions import (
    CONVENTIONS,
    DEFAULT,
    RELATIVE_CONVENTIONS,
    Method,
    RelativeConvention,
    Resampling,
)
from resize_pos.core.errors import UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.operations import Lengthen, SinCosMode

SizeLike = int | str | tuple[int, int] | Size
GridLike = int | str | tuple[int, int] | Grid


@dataclass(frozen=True, slots=True)
class Request:
    """A transfer: where to, what is stated about the source, and how to resample."""

    to_size: Size | None = None
    to_grid: Grid | None = None
    from_size: Size | None = None
    from_grid: Grid | None = None
    patch: Size | None = None
    prefix: int | None = None
    suffix: int | None = None
    family: str | None = None
    pattern: str | None = None
    axes: str | None = None
    like: str | None = None
    resampling: Resampling = DEFAULT.resampling
    to_window: Grid | None = None  # of the models whose relative tables follow a window
    from_window: Grid | None = None
    relative: RelativeConvention | None = None  # None: what the family's own library does
    optimizer: str | None = None  # resize or drop its state; None: resize where that is certain
    to_length: int | None = None  # positions of the text tables
    from_length: int | None = None
    lengthen: Lengthen | None = None  # None: not chosen
    sincos: SinCosMode | None = None  # None: as the formula suggests
    to_patch: Size | None = None
    to_frames: int | None = None
    to_rows: int | None = None  # of raw-index tables
    reference_grids: str = "keep"
    force_interpolate: bool = False

    @property
    def to_image(self) -> bool:
        """Whether a target for the image tables is given."""
        return self.to_size is not None or self.to_grid is not None

    @classmethod
    def make(
        cls,
        *,
        to: SizeLike | None = None,
        to_grid: GridLike | None = None,
        from_: SizeLike | None = None,
        from_grid: GridLike | None = None,
        patch: SizeLike | None = None,
        prefix: int | None = None,
        suffix: int | None = None,
        family: str | None = None,
        pattern: str | None = None,
        axes: str | None = None,
        method: str | None = None,
        antialias: bool | None = None,
        like: str | None = None,
        to_window: GridLike | None = None,
        from_window: GridLike | None = None,
        relative_like: str | None = None,
        optimizer: str | None = None,
        to_length: int | None = None,
        from_length: int | None = None,
        length_method: str | None = None,
        fill: str | None = None,
        sincos: str | None = None,
        to_patch: SizeLike | None = None,
        to_frames: int | None = None,
        to_rows: int | None = None,
        reference_grids: str = "keep",
        force_interpolate: bool = False,
    ) -> Request:
        """Read loosely typed options; refuse what is malformed or contradicts itself."""
        _exclusive(("--to", to), ("--to-grid", to_grid))
        _exclusive(("--from", from_), ("--from-grid", from_grid))
        _exclusive(("--family", family), ("--pattern", pattern))
        if (pattern is None) != (axes is None):
            raise UsageError(
                "--pattern and --axes belong together.",
                hint="for example: --pattern 'my_pos$' --axes '1 (p h w s) d'",
            )
        if optimizer not in (None, "resize", "drop"):
            raise UsageError(f"--optimizer {optimizer!r} is neither resize nor drop.")
        for name, count in (("--prefix", prefix), ("--suffix", suffix)):
            if count is not None and count < 0:
                raise UsageError(f"{name} {count} is negative; it counts rows.")
        for name, count in (("--to-length", to_length), ("--from-length", from_length)):
            if count is not None and count < 1:
                raise UsageError(f"{name} {count} must be at least 1; it counts positions.")
        if fill is not None and length_method is None:
            raise UsageError("--fill belongs to --length-method keep.")
        if sincos is not None and sincos not in set(SinCosMode):
            raise UsageError(
                f"--sincos {sincos!r} is not known.", hint=f"use {', '.join(SinCosMode)}."
            )
        for name, count in (("--to-frames", to_frames), ("--to-rows", to_rows)):
            if count is not None and count < 1:
                raise UsageError(f"{name} {count} must be at least 1.")
        if reference_grids not in ("keep", "resize"):
            raise UsageError(f"--reference-grids {reference_grids!r} is neither keep nor resize.")
        return cls(
            to_size=None if to is None else Size.parse(to, "--to"),
            to_grid=None if to_grid is None else Grid.parse(to_grid, "--to-grid"),
            from_size=None if from_ is None else Size.parse(from_, "--from"),
            from_grid=None if from_grid is None else Grid.parse(from_grid, "--from-grid"),
            patch=None if patch is None else Size.parse(patch, "--patch"),
            prefix=prefix,
            suffix=suffix,
            family=family,
            pattern=pattern,
            axes=axes,
            like=like,
            resampling=choose_resampling(method, antialias, like),
            to_window=None if to_window is None else Grid.parse(to_window, "--to-window"),
            from_window=None if from_window is None else Grid.parse(from_window, "--from-window"),
            relative=None if relative_like is None else _relative(relative_like),
            optimizer=optimizer,
            to_length=to_length,
            from_length=from_length,
            lengthen=None if length_method is None else Lengthen.parse(length_method, fill),
            sincos=None if sincos is None else SinCosMode(sincos),
            to_patch=None if to_patch is None else Size.parse(to_patch, "--to-patch"),
            to_frames=to_frames,
            to_rows=to_rows,
            reference_grids=reference_grids,
            force_interpolate=force_interpolate,
        )


def as_lengths(request: Request) -> Request:
    """Read `--from` and `--to` as lengths, for a checkpoint whose tables are all 1-D."""
    if request.to_grid is not None or request.from_grid is not None:
        raise UsageError(
            "every table of this file is 1-D (a text): it has a length and no grid.",
            hint="pass --to N, or --to-length N.",
        )
    for flag, size in (("--to", request.to_size), ("--from", request.from_size)):
        if size is not None and size.height != size.width:
            raise UsageError(
                f"{flag} {size}: every table of this file is 1-D (a text): it has a length, not a "
                "height and a width.",
                hint=f"write one number, for example {flag} {size.width}.",
            )
    _exclusive(("--to", request.to_size), ("--to-length", request.to_length))
    _exclusive(("--from", request.from_size), ("--from-length", request.from_length))
    to_length = request.to_size.width if request.to_size else request.to_length
    from_length = request.from_size.width if request.from_size else request.from_length
    return replace(
        request, to_size=None, from_size=None, to_length=to_length, from_length=from_length
    )


def choose_resampling(
    method: str | None = None, antialias: bool | None = None, like: str | None = None
) -> Resampling:
    """Combine `--method`, `--antialias` and `--like`; the default is bicubic with antialias."""
    if like is not None:
        if method is not None or antialias is not None:
            raise UsageError(
                "--like fixes the method and the antialiasing; it excludes --method and "
                "--antialias.",
            )
        if like not in CONVENTIONS:
            raise UsageError(
                f"--like {like!r} is not a known convention.",
                hint=f"known ones: {', '.join(CONVENTIONS)}.",
            )
        return CONVENTIONS[like].resampling
    try:
        chosen = Method(method) if method is not None else DEFAULT.resampling.method
    except ValueError:
        raise UsageError(
            f"--method {method!r} is not known.", hint=f"use one of {', '.join(Method)}."
        ) from None
    if chosen is Method.NEAREST:
        if antialias:
            raise UsageError("--antialias has no meaning with --method nearest.")
        return Resampling(chosen, antialias=False)
    return Resampling(chosen, antialias=True if antialias is None else antialias)


def _relative(name: str) -> RelativeConvention:
    if name not in RELATIVE_CONVENTIONS:
        raise UsageError(
            f"--relative-like {name!r} is not a known convention.",
            hint=f"known ones: {', '.join(RELATIVE_CONVENTIONS)}.",
        )
    return RELATIVE_CONVENTIONS[name]


def _exclusive(*flags: tuple[str, object]) -> None:
    given = [name for name, value in flags if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; pass one of them.")
