"""NumPy archives: members are copied as they lie, only tables are packed anew."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.containers.npz.file import NpzFile
from resize_pos.core.errors import ContainerError, TableError
from tests.support.builders import flat, smooth
from tests.support.folder_builders import peak_memory

NAME = "params/img/pos_embedding"
WIDE: dict[str, Any] = {
    "pattern": "pos_embedding$",
    "axes": "1 (h w) d",
    "from_grid": "4x6",
    "to_grid": "6x9",
}
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def tensors(dtype: Any = np.float32) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(3)
    return {
        "params/img/embedding/kernel": rng.normal(size=(16, 16, 3, 8)).astype(np.float32),
        NAME: smooth(4, 6, 8).reshape(1, 24, 8).astype(dtype),
        "params/t": np.asarray(3.0, np.float32),
        "params/half": rng.normal(size=(5, 3)).astype(ml_dtypes.bfloat16),
        "params/names": np.array(["ä", "b"]),
        "params/objects": np.array([{"a": 1}, None], dtype=object),
        "params/empty": np.zeros((0, 4), np.int8),
    }


def write(path: Path, arrays: dict[str, NDArray[Any]], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())
        archive.writestr("readme.txt", b"not an array")
    return path


def raw_members(path: Path) -> dict[str, bytes]:
    """Cut the archive into its members, packed bytes and local headers included."""
    blob = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        ends = [info.header_offset for info in infos[1:]] + [archive.start_dir]
    return {
        info.filename: blob[info.header_offset : end] for info, end in zip(infos, ends, strict=True)
    }


@pytest.mark.parametrize("method", METHODS)
def test_only_the_table_is_packed_anew(method: int, tmp_path: Path) -> None:
    source = write(tmp_path / "vit.npz", tensors(), method)
    report = resize_checkpoint(source, **WIDE, output=tmp_path / "out.npz")
    assert report.output is not None
    before, after = raw_members(source), raw_members(report.output)
    assert list(before) == list(after)
    assert {name for name in before if before[name] != after[name]} == {f"{NAME}.npy"}
    with zipfile.ZipFile(report.output) as archive:
        assert archive.testzip() is None
        assert archive.getinfo(f"{NAME}.npy").compress_type == method
    loaded = np.load(report.output, allow_pickle=True)
    assert set(loaded) == {*tensors(), "readme.txt"}
    assert loaded[NAME].shape == (1, 54, 8)
    for name, array in tensors().items():
        if name != NAME and array.dtype != object:
            np.testing.assert_array_equal(loaded[name].tobytes(), array.tobytes())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_itself_saved_is_understood(save: Callable[..., None], tmp_path: Path) -> None:
    source = tmp_path / "vit.npz"
    save(source, **tensors())
    report = resize_checkpoint(source, **WIDE)
    assert report.output is not None
    assert report.output.suffix == ".npz"
    with np.load(report.output) as loaded:
        assert loaded[NAME].shape == (1, 54, 8)


STORED: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "plain": lambda a: a,
    "big-endian": lambda a: a.astype(">f4"),
    "fortran": np.asfortranarray,
    "fortran big-endian": lambda a: np.asfortranarray(a.astype(">f4")),
    "double": lambda a: a.astype(np.float64),
    "half": lambda a: a.astype(np.float16),
}


@pytest.mark.parametrize("stored", STORED)
def test_a_table_stays_in_its_type_and_order(stored: str, tmp_path: Path) -> None:
    table = STORED[stored](flat(4, 6, 8, prefix=1))
    source = write(tmp_path / "vit.npz", {NAME: table})
    report = resize_checkpoint(source, **{**WIDE, "axes": "1 (p h w) d"}, prefix=1)
    assert report.output is not None
    with np.load(source) as old, np.load(report.output) as new:
        assert new[NAME].dtype == old[NAME].dtype
        assert new[NAME].flags.f_contiguous == old[NAME].flags.f_contiguous
        np.testing.assert_array_equal(new[NAME][:, :1], old[NAME][:, :1])
    again = write(
        tmp_path / "plain.npz", {NAME: np.ascontiguousarray(table, table.dtype.newbyteorder("="))}
    )
    expected = resize_checkpoint(again, **{**WIDE, "axes": "1 (p h w) d"}, prefix=1)
    assert expected.output is not None
    np.testing.assert_array_equal(
        open_container(report.output).read(NAME), open_container(expected.output).read(NAME)
    )


def test_the_new_member_is_what_numpy_would_write(tmp_path: Path) -> None:
    source = write(tmp_path / "vit.npz", tensors())
    report = resize_checkpoint(source, **WIDE)
    assert report.output is not None
    with np.load(report.output) as loaded:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, loaded[NAME])
    with zipfile.ZipFile(report.output) as archive:
        assert archive.read(f"{NAME}.npy") == buffer.getvalue()


def test_two_bytes_without_a_meaning_are_bfloat16(tmp_path: Path) -> None:
    source = write(tmp_path / "vit.npz", tensors(ml_dtypes.bfloat16))
    assert open_container(source).tensors[NAME].dtype == "BF16"
    report = resize_checkpoint(source, **WIDE)
    assert report.output is not None
    with np.load(source) as old, np.load(report.output) as new:
        assert new[NAME].dtype == old[NAME].dtype == np.dtype("V2")
        values = new[NAME].view(ml_dtypes.bfloat16).astype(np.float32)
    plain = resize_checkpoint(write(tmp_path / "f32.npz", tensors()), **WIDE)
    assert plain.output is not None
    with np.load(plain.output) as exact:
        np.testing.assert_allclose(values, exact[NAME], atol=0.02)


def test_the_record_is_the_comment_and_no_member(tmp_path: Path) -> None:
    source = write(tmp_path / "vit.npz", tensors())
    report = resize_checkpoint(source, **WIDE)
    assert report.output is not None
    with zipfile.ZipFile(report.output) as archive:
        assert json.loads(json.loads(archive.comment)["resize_pos"])["tables"][NAME]["to"] == [6, 9]
    options = {key: WIDE[key] for key in ("pattern", "axes")}
    (table,) = inspect_checkpoint(report.output, **options).located.tables
    assert (table.grid.height, table.grid.width) == (6, 9)


def test_somebody_else_s_comment_is_kept(tmp_path: Path) -> None:
    source = write(tmp_path / "vit.npz", tensors())
    with zipfile.ZipFile(source, "a") as archive:
        archive.comment = b"made by hand"
    report = resize_checkpoint(source, **WIDE)
    assert report.output is not None
    with zipfile.ZipFile(report.output) as archive:
        assert archive.comment == b"made by hand"


def test_objects_are_carried_over_and_never_read(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    source = tmp_path / "vit.npz"
    write(source, {**tensors(), "bomb": np.array([Bomb()], dtype=object)})
    report = resize_checkpoint(source, **WIDE)
    assert report.output is not None
    assert raw_members(source)["bomb.npy"] == raw_members(report.output)["bomb.npy"]
    container = open_container(source)
    assert "bomb" not in container.tensors
    with pytest.raises(TableError, match="never unpickled"):
        container.read("bomb")
    assert not (tmp_path / "exploded").exists()


def test_members_with_descriptors_and_gaps_are_kept(tmp_path: Path) -> None:
    """A writer that cannot seek puts sizes after the data; what lies between members stays."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: Any) -> int:
            raise OSError("a pipe")

        def tell(self) -> int:
            raise OSError("a pipe")

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, array in tensors().items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    source = tmp_path / "vit.npz"
    source.write_bytes(pipe.getvalue())
    report = resize_checkpoint(source, **WIDE)
    assert report.output is not None
    before, after = raw_members(source), raw_members(report.output)
    assert {name for name in before if before[name] != after[name]} == {f"{NAME}.npy"}
    with zipfile.ZipFile(report.output) as archive:
        assert archive.testzip() is None


def npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + data


BROKEN: dict[str, tuple[bytes, str]] = {
    "no magic": (b"hello world", "no array"),
    "empty": (b"", "no array"),
    "version": (npy(b"{}", version=b"\x09\x00"), "version 9.0"),
    "call": (
        npy(b"{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': ()}"),
        "is not valid",
    ),
    "not a dictionary": (npy(b"[1, 2]"), "does not state"),
    "missing": (npy(b"{'descr': '<f4'}"), "does not state"),
    "negative": (
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
        "is not valid",
    ),
    "short": (
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", b"1234"),
        "takes 12 bytes",
    ),
    "cut": (b"\x93NUMPY\x01\x00\xff\x00{", "ends inside its header"),
    "deep": (npy(b"(" * 50_000), "does not state"),
    "no tuple": (npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3)}"), "no tuple"),
    "twice": (npy(b"{'descr': '<f4', 'descr': '<f4', 'shape': (3,)}"), "does not state"),
    "axes": (
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 65 + b")}"),
        "65 axes",
    ),
    "digits": (
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"9" * 4301 + b",)}"),
        "is not valid",
    ),
    "long": (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "claims 2147483647 bytes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_member_is_refused(case: str, tmp_path: Path) -> None:
    content, words = BROKEN[case]
    path = tmp_path / "vit.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(ContainerError, match=f"vit.npz: a: .*{words}"):
        NpzFile.open(path)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "vit.npz", {NAME: tensors()[NAME]}, zipfile.ZIP_STORED)
    blob = bytearray(source.read_bytes())
    blob[300] ^= 1  # inside of the data; the checksum tells
    source.write_bytes(blob)
    with pytest.raises(ContainerError, match="cannot be unpacked"):
        resize_checkpoint(source, **WIDE)
    assert [path.name for path in tmp_path.iterdir()] == ["vit.npz"]


@pytest.mark.parametrize("length", [30, 200, -1])
def test_a_truncated_archive_is_refused(length: int, tmp_path: Path) -> None:
    source = write(tmp_path / "vit.npz", tensors())
    source.write_bytes(source.read_bytes()[:length])
    with pytest.raises(ContainerError):
        resize_checkpoint(source, **WIDE)


def test_the_format_is_named(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.npz", tensors())
    packed = write(tmp_path / "b.npz", tensors(), zipfile.ZIP_DEFLATED)
    assert open_container(plain).format == "numpy archive, 3 members that are no numbers"
    assert "compressed" in open_container(packed).format


@pytest.mark.slow
def test_a_large_archive_takes_little_memory(tmp_path: Path) -> None:
    source = tmp_path / "large.npz"
    shape = (2**29,)  # 2 GiB of float32, in a hole of the file
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    write(source, {NAME: tensors()[NAME]})
    # A stored member of zeros, appended by hand: zipfile would write every byte of it.
    _append_hole(source, "params/large.npy", header.getvalue(), 4 * 2**29)
    words = ["--pattern", "pos_embedding$", "--axes", "1 (h w) d"]
    words += ["--from-grid", "4x6", "--to-grid", "6x9", "-o", str(tmp_path / "out.npz")]
    assert peak_memory(source, *words) < 150e6
    container = open_container(tmp_path / "out.npz")
    assert container.tensors["params/large"].shape == shape
    assert container.tensors[NAME].shape == (1, 54, 8)


def _append_hole(path: Path, name: str, start: bytes, zeros: int) -> None:
    """Add a stored member whose data is a hole; its checksum is wrong, and nobody reads it."""
    from resize_pos.containers.npz.archive import Member, central_header, local_header
    from resize_pos.containers.zip.headers import closing

    with zipfile.ZipFile(path) as archive:
        infos, directory = archive.infolist(), archive.start_dir
    info = zipfile.ZipInfo(name)
    info.file_size = info.compress_size = len(start) + zeros
    info.CRC = 1
    header = local_header(info)
    members = [Member(old, old.header_offset, 0) for old in infos]
    with path.open("r+b") as file:
        file.truncate(directory)
        file.seek(directory)
        file.write(header + start)
        file.truncate(file.tell() + zeros)
        file.seek(0, io.SEEK_END)
        offset = file.tell()
        central = b"".join(central_header(m.info, m.begin) for m in members)
        central += central_header(info, directory)
        file.write(central + closing(len(members) + 1, len(central), offset, b""))
