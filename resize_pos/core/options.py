"""Every option of a conversion, declared once.

This table is the only place where an option is written down. From it come: the flags of `resize`
and `batch` (`cli/options.py`), the keyword arguments of the Python API and their documentation,
the fields of `Request` and of `Job` (`core/request_fields.py`, generated), the keys of a batch
manifest, and the request in the JSON document.

To add an option: add an entry here, then run `python -m resize_pos.core.options_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from resize_pos.core.conventions import ALIASES, CONVENTIONS, RELATIVE_CONVENTIONS, Method
from resize_pos.core.devices import CPU, check_device
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.operations import Fill, SinCosMode


class Kind(StrEnum):
    """What values an option takes."""

    SIZE = "size"  # pixels: 384 or 384x512
    GRID = "grid"  # patches: 24 or 24x32
    COUNT = "count"  # a whole number
    TEXT = "text"
    TEXTS = "texts"  # may be given several times
    CHOICE = "choice"  # one of `choices`
    SWITCH = "switch"  # --name or --no-name; neither means: not given
    FLAG = "flag"  # given or not


class Section(StrEnum):
    """Options that the help shows together, and that some commands take without the others."""

    TO = "to"
    TARGET = "target"
    SOURCE = "source"
    METHOD = "method"
    LENGTH = "length"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its names, the values it takes, and where its value goes."""

    name: str  # the keyword argument in Python; `from_` because `from` is reserved
    kind: Kind
    section: Section
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()  # another word for a choice, and the choice
    least: int = 1  # for COUNT
    field: str | None = ""  # of `Request` or `Job`; empty: as `name`; None: see `Joined`
    type: str = ""  # the field's type, where it is not that of its kind
    parse: Callable[[str], object] | None = None  # text or choice → the field's value
    default: str | None = None  # for TEXT and CHOICE: the field's value when it is not given
    shown: str = ""  # the attribute that the JSON document shows; empty: the field
    flag: str = ""  # the flag, where it is not --name; may hold a short form: "-f --force"

    @property
    def key(self) -> str:
        """The name in manifests and in the JSON document."""
        return self.name.rstrip("_")

    @property
    def flags(self) -> tuple[str, ...]:
        """How it is written on the command line."""
        return tuple(self.flag.split()) or (f"--{self.key.replace('_', '-')}",)

    @property
    def long_flag(self) -> str:
        """The flag as error messages name it."""
        return self.flags[-1]

    @property
    def field_name(self) -> str | None:
        """The field that holds it; None where several options make one field."""
        return self.name if self.field == "" else self.field

    @property
    def on_by_default(self) -> bool:
        """Whether the flag switches it off."""
        return self.kind is Kind.SWITCH and self.long_flag.startswith("--no-")


@dataclass(frozen=True, slots=True)
class Joined:
    """A field of `Request` that several options make together."""

    field: str
    type: str
    default: str  # as Python source
    options: tuple[str, ...]


_TO, _TARGET, _SOURCE = Section.TO, Section.TARGET, Section.SOURCE
_METHOD, _LENGTH, _RUN = Section.METHOD, Section.LENGTH, Section.RUN

# The order is that of the fields of `Request`, which is the order in a converted file's record.
OPTIONS: tuple[Option | Joined, ...] = (
    Option(
        "to",
        Kind.SIZE,
        _TO,
        "Target image size: 384, 384x512 (height × width) or 64x96x96 (a volume, depth first); "
        "for a text model, its length.",
        "SIZE",
        field="to_size",
    ),
    Option("to_grid", Kind.GRID, _TO, "Target grid in patches, instead of --to.", "HxW"),
    Option(
        "from_",
        Kind.SIZE,
        _SOURCE,
        "Image size of the checkpoint; optional, checked against the file.",
        "SIZE",
        field="from_size",
    ),
    Option("from_grid", Kind.GRID, _SOURCE, "Grid of the checkpoint, in patches.", "HxW"),
    Option(
        "patch", Kind.SIZE, _SOURCE, "Patch size in pixels; default: read from the file.", "N|HxW"
    ),
    Option("prefix", Kind.COUNT, _SOURCE, "Rows before the grid (cls, registers …).", "N", least=0),
    Option("suffix", Kind.COUNT, _SOURCE, "Rows after the grid.", "N", least=0),
    Option(
        "family",
        Kind.TEXT,
        _SOURCE,
        "Treat the table as belonging to this family (see `families`).",
        "NAME",
    ),
    Option(
        "pattern",
        Kind.TEXTS,
        _SOURCE,
        "Regular expression for the name of a table that no family knows; repeatable.",
        "REGEX",
    ),
    Option(
        "axes",
        Kind.TEXTS,
        _SOURCE,
        'Layout of that table, such as "1 (p h w s) d"; default: from its shape. With several '
        "--pattern: one for all of them, or one for each.",
        "PATTERN",
    ),
    Option(
        "also",
        Kind.TEXTS,
        _SOURCE,
        "Resize the tensors whose names match along with the table that has as many rows; "
        "repeatable.",
        "REGEX",
    ),
    Option(
        "leave",
        Kind.TEXTS,
        _SOURCE,
        "Tensors whose names match do not depend on the resolution; do not ask about them; "
        "repeatable.",
        "REGEX",
    ),
    Option(
        "yes_by_value",
        Kind.FLAG,
        _SOURCE,
        "Accept tables that were found by their shape and values, without a warning.",
    ),
    Option(
        "method",
        Kind.CHOICE,
        _METHOD,
        "Interpolation [default: bicubic].",
        choices=tuple(method.value for method in Method),
        field=None,
        shown="resampling.method",
    ),
    Option(
        "antialias",
        Kind.SWITCH,
        _METHOD,
        "Widen the kernel when shrinking [default: yes].",
        field=None,
        shown="resampling.antialias",
    ),
    Option(
        "like",
        Kind.CHOICE,
        _METHOD,
        "Do exactly what this library does.",
        choices=tuple(CONVENTIONS),
        aliases=tuple(ALIASES.items()),
    ),
    Joined("resampling", "Resampling", "DEFAULT.resampling", ("method", "antialias", "like")),
    Option(
        "restore_norms",
        Kind.FLAG,
        _METHOD,
        "Rescale each new vector to the interpolated norm of its neighbours, within their range.",
    ),
    Option(
        "attention_scale",
        Kind.FLAG,
        _METHOD,
        "Experimental: multiply the queries of attention by √(log N′ ÷ log N), N tokens before, "
        "N′ after.",
    ),
    Option(
        "to_window",
        Kind.GRID,
        _TO,
        "Target attention window of models such as Swin, in cells; DxHxW for a volume.",
        "N|HxW",
    ),
    Option(
        "from_window",
        Kind.GRID,
        _SOURCE,
        "Attention window of the checkpoint, if the file does not determine it.",
        "N|HxW",
    ),
    Option(
        "relative_like",
        Kind.CHOICE,
        _METHOD,
        "Resample relative tables as this library does [default: the family's own].",
        choices=tuple(RELATIVE_CONVENTIONS),
        aliases=(("transformers", "hf"), ("huggingface", "hf")),
        field="relative",
        type="RelativeConvention",
        parse=RELATIVE_CONVENTIONS.__getitem__,
        shown="relative.name",
    ),
    Option(
        "optimizer",
        Kind.CHOICE,
        _RUN,
        "Optimizer state of a resized table [default: resize it if the match is certain].",
        choices=("resize", "drop"),
    ),
    Option("to_length", Kind.COUNT, _LENGTH, "Target length of text tables.", "N"),
    Option(
        "from_length",
        Kind.COUNT,
        _LENGTH,
        "Length of the text tables to change; optional, checked against the file.",
        "N",
    ),
    Option(
        "length_method",
        Kind.TEXT,
        _LENGTH,
        "linear, cubic, nearest, tile, keep or stretch:K; required to make a text table longer.",
        "METHOD",
        field=None,
        shown="lengthen.method_name",
    ),
    Option(
        "fill",
        Kind.CHOICE,
        _LENGTH,
        "Values of the new positions with --length-method keep.",
        choices=tuple(fill.value for fill in Fill),
        field=None,
        shown="lengthen.fill",
    ),
    Joined("lengthen", "Lengthen | None", "None", ("length_method", "fill")),
    Option(
        "sincos",
        Kind.CHOICE,
        _LENGTH,
        "How fixed sin-cos tables change [default: rescaled; absolute for 1-D tables].",
        choices=tuple(mode.value for mode in SinCosMode),
        type="SinCosMode",
        parse=SinCosMode,
    ),
    Option(
        "to_patch",
        Kind.SIZE,
        _TARGET,
        "Also change the patch size: the patch embedding is resized by pseudo-inverse.",
        "N|HxW",
    ),
    Option(
        "to_frames",
        Kind.COUNT,
        _TARGET,
        "Number of frames of a video model [default: unchanged].",
        "N",
    ),
    Option(
        "floor",
        Kind.FLAG,
        _TARGET,
        "Accept a size that is no multiple of the patch size; the rest is dropped.",
    ),
    Option("to_time", Kind.COUNT, _TARGET, "Frames of the spectrogram: AST, Whisper …", "N"),
    Option("to_mel", Kind.COUNT, _TARGET, "Mel bins of the spectrogram: AST, PaSST …", "N"),
    Option(
        "tower",
        Kind.TEXT,
        _TARGET,
        "Only change tables whose name contains TEXT, for a file with two image towers.",
        "TEXT",
    ),
    Option(
        "to_rows",
        Kind.COUNT,
        _TARGET,
        "Extend or cut tables whose rows are looked up by number.",
        "N",
    ),
    Option(
        "reference_grids",
        Kind.CHOICE,
        _TARGET,
        "Grids that the library resamples at run time [default: keep].",
        choices=("keep", "resize"),
        default="keep",
    ),
    Option(
        "tile_window", Kind.GRID, _METHOD, "Tile the mean window; interpolate the rest.", "N|HxW"
    ),
    Option(
        "force_interpolate",
        Kind.FLAG,
        _TARGET,
        "Also interpolate tables for which interpolation is known to be wrong.",
    ),
)

# How a conversion is run; none of it is part of the request. Each is a field of `JobFields`.
JOB_OPTIONS: tuple[Option, ...] = (
    Option(
        "device",
        Kind.TEXT,
        _METHOD,
        "cpu, cuda, cuda:N or mps [default: cpu].",
        "DEVICE",
        parse=check_device,
        default=CPU,
    ),
    Option("force", Kind.FLAG, _RUN, "Replace an existing target or report.", flag="-f --force"),
    Option(
        "edit_configs",
        Kind.SWITCH,
        _RUN,
        "Convert only the weights of a folder; its config files stay as they are.",
        flag="--no-config",
    ),
    Option(
        "edit_sizes",
        Kind.FLAG,
        _RUN,
        "Also change sizes that the checkpoint itself states, such as hyper_parameters.img_size.",
    ),
    Option(
        "link",
        Kind.FLAG,
        _RUN,
        "Hard-link large files that do not change; without it, they are copied.",
    ),
    Option(
        "drop_extras",
        Kind.FLAG,
        _RUN,
        "Leave out what the output's format cannot hold (-o NAME.safetensors).",
    ),
    Option(
        "select",
        Kind.TEXT,
        _RUN,
        "Write only this entry of a training checkpoint, such as model_ema.",
        "NAME",
    ),
    Option(
        "durable",
        Kind.FLAG,
        _RUN,
        "Wait until a new target is on the disk; one that is replaced always waits.",
    ),
    Option("dry_run", Kind.FLAG, _RUN, "Show the plan and write nothing.", flag="-n --dry-run"),
)


def request_options(table: Iterable[Option | Joined] = OPTIONS) -> tuple[Option, ...]:
    """Return the options of a request, without the fields that are made of several."""
    return tuple(entry for entry in table if isinstance(entry, Option))


OPTION_BY_NAME: Mapping[str, Option] = {option.name: option for option in request_options()}
JOB_OPTION_BY_NAME: Mapping[str, Option] = {option.name: option for option in JOB_OPTIONS}
