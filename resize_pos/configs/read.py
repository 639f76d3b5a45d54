"""Read the config files beside a checkpoint, and the image sizes that they state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path

from resize_pos.configs.keys import (
    CONFIG_FILES,
    PLACES,
    SPECTROGRAM,
    WRAPPERS,
    ConfigPlace,
    KeyKind,
    Library,
)
from resize_pos.configs.model_types import model_type_of
from resize_pos.core.errors import ContainerError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.json_edit import Document, parse

_LARGEST = 64 * 2**20  # a config has a few kB, a tokenizer a few MB; larger files are refused

_SIZE_FILES = tuple(dict.fromkeys(p.file for p in PLACES if p.kind is KeyKind.SIZE))


NO_CONFIG = "pass --no-config to convert the weights alone."


@dataclass(frozen=True, slots=True)
class ConfigSize:
    """An image size that a config file states, and the patch size if it states one."""

    file: str
    key: str
    size: Size
    patch: Size | None
    step: Size | None = None  # from one patch to the next, if patches overlap


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One config file: its JSON source, and the parsed document."""

    source: str
    document: Document


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The config files in a folder. Each one is read and parsed at most once."""

    folder: Path | None = None  # None: there are none
    _cache: dict[str, ConfigFile | Exception | None] = field(default_factory=dict, repr=False)

    def read(
        self, names: Iterable[str] = CONFIG_FILES, *, strict: bool = False
    ) -> Mapping[str, ConfigFile]:
        """Return the files that exist and hold a JSON object.

        Other files are skipped. With `strict` they are refused, because they cannot be edited.
        """
        found = {}
        for name in names:
            file = self._file(name)
            if isinstance(file, ConfigFile):
                found[name] = file
            elif strict and file is not None:
                raise ContainerError(
                    f"{name}: is not a JSON object: {file}.", hint=f"repair it, or {NO_CONFIG}"
                ) from file
        return found

    def documents(self, names: Iterable[str] = CONFIG_FILES) -> Mapping[str, Document]:
        """Return the parsed files, by name."""
        return {name: file.document for name, file in self.read(names).items()}

    def sizes(self) -> tuple[ConfigSize, ...]:
        """List every image size that these files state."""
        return config_sizes(self.documents(_SIZE_FILES))

    def _file(self, name: str) -> ConfigFile | Exception | None:
        if self.folder is None:
            return None
        if name not in self._cache:
            try:
                self._cache[name] = _read_object(self.folder / name)
            except (OSError, ValueError, RecursionError) as error:
                self._cache[name] = error
        return self._cache[name]


def _read_object(path: Path) -> ConfigFile | None:
    if not path.is_file():
        return None
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST} bytes")
    source = path.read_bytes().decode("utf-8")
    document = parse(source)
    if not isinstance(document, dict):
        raise ValueError(f"it holds a {type(document).__name__}")
    return ConfigFile(source, document)


def config_sizes(documents: Mapping[str, Document]) -> tuple[ConfigSize, ...]:
    """Return every image size that the documents state."""
    found = []
    for place in PLACES:
        if place.kind is not KeyKind.SIZE:
            continue
        for path, value in stated(place, documents):
            size = as_size(value)
            if size is not None:
                patch = as_size(follow(documents[place.file], (*path[:-1], "patch_size")))
                found.append(ConfigSize(place.file, ".".join(path), size, patch))
    return (*found, *_spectrograms(documents.get("config.json", {})))


def _spectrograms(document: Document) -> Iterator[ConfigSize]:
    """Read the size of a spectrogram, frequency × time, and the step between its patches."""
    if model_type_of(document) != SPECTROGRAM:
        return
    size = as_size([document.get("num_mel_bins"), document.get("max_length")])
    if size is not None:
        patch = as_size(document.get("patch_size"))
        step = as_size([document.get("frequency_stride"), document.get("time_stride")])
        yield ConfigSize("config.json", "num_mel_bins × max_length", size, patch, step)


def stated(
    place: ConfigPlace, documents: Mapping[str, Document]
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Find a place in documents: yield every path where it has a value, with the value."""
    document = documents.get(place.file)
    if document is None or library_of(place.file, document) is not place.library:
        return
    wrappers = WRAPPERS if place.file == "config.json" else ((),)
    sections = [(*wrapper, *section) for wrapper in wrappers for section in place.sections]
    for section in dict.fromkeys(sections):
        found = follow(document, section)
        if not isinstance(found, dict) or found.get(place.key) is None:
            continue
        if not place.models or model_types(document, section) & place.models:
            yield (*section, place.key), found[place.key]


def model_types(document: Document, section: tuple[str, ...]) -> set[str]:
    """Return the model types of a section and of all sections around it."""
    parts = (follow(document, section[:depth]) for depth in range(len(section) + 1))
    return {name for name in map(model_type_of, parts) if name}


def library_of(file: str, document: Document) -> Library:
    """Return the library that a config belongs to: timm and transformers both use config.json."""
    if file == "open_clip_config.json":
        return Library.OPEN_CLIP
    if file != "config.json":
        return Library.HF
    # The timm wrapper of transformers has a model_type and also timm's fields.
    timm = "pretrained_cfg" in document or "model_args" in document
    flat = "architecture" in document and "model_type" not in document
    return Library.TIMM if timm or flat else Library.HF


def configs_library(documents: Mapping[str, Document]) -> Library | None:
    """Return the library that loads a folder with these configs; None: there are none."""
    for file in ("open_clip_config.json", "config.json"):
        if file in documents:
            return library_of(file, documents[file])
    return None


def architecture(documents: Mapping[str, Document]) -> str | None:
    """Return the class of transformers that saved these configs; None: it has code of its own."""
    config = documents.get("config.json", {})
    stated = config.get("architectures")
    name = stated[0] if isinstance(stated, list) and len(stated) == 1 else None
    if not isinstance(name, str) or "auto_map" in config:
        return None
    return name if name.isascii() and name.isidentifier() else None


def follow(document: Document, path: tuple[str, ...]) -> object:
    """Return the value at a path, or None."""
    value: object = document
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def as_size(value: object) -> Size | None:
    """Read N, [n], [h, w], [channels, h, w] or {"height": h, "width": w} as pixels."""
    if isinstance(value, dict) and {"height", "width"} <= set(value):
        value = [value["height"], value["width"]]
    if type(value) is int:
        value = [value, value]
    if not isinstance(value, list) or not all(type(part) is int for part in value):
        return None
    pair = value[-2:] if len(value) in (2, 3) else value * 2
    try:
        return Size.parse((pair[0], pair[1])) if len(pair) == 2 else None
    except UsageError:
        return None
