"""What a small file may cost: work in proportion to its size, and 64 MB plus 40 times its size."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from resize_pos import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.dcp.entries import read_entry
from resize_pos.containers.detect import open_container
from resize_pos.containers.pickle.edit import encode_int, encode_ints, encode_str
from resize_pos.core.errors import ResizePosError
from tests.containers.test_hostile_pickles import archive, tensor

NAN = b"G" + struct.pack(">d", float("nan"))


def nan_keys(count: int) -> bytes:
    one = tensor()
    return b"\x80\x02}(" + b"".join(NAN + one for _ in range(count)) + b"u."


def optimizers(count: int) -> bytes:
    body = encode_str("state") + b"}" + encode_str("param_groups") + b"]"
    each = b"".join(encode_str(f"o{i}") + b"}(" + body + b"u" for i in range(count))
    return b"\x80\x02}(" + each + encode_str("pos_embed") + tensor() + b"u."


def equal_hashes(count: int) -> bytes:
    """Write integer keys that all have the same hash."""
    keys = (((2**61 - 1) * i).to_bytes(16, "little", signed=True) for i in range(1, count + 1))
    return b"\x80\x02}(" + b"".join(b"\x8a\x10" + key + b"N" for key in keys) + b"u."


def repeated_builds(count: int) -> bytes:
    return b"\x80\x02ccollections\nOrderedDict\n)R" + b"Nb" * count + b"."


def repeated_puts(count: int) -> bytes:
    return b"\x80\x04N" + b"\x94" * count + b"."


def shared_tensor(count: int) -> bytes:
    names = b"".join(encode_str(f"n{i}") + b"h\7" for i in range(count))
    return b"\x80\x02" + tensor() + b"q\x070}(" + names + b"u."


MANY: dict[str, Callable[[int], bytes]] = {
    "keys that are not a number": nan_keys,
    "optimizers": optimizers,
    "keys with equal hashes": equal_hashes,
    "states of one object": repeated_builds,
    "memo entries of one value": repeated_puts,
    "names of one tensor": shared_tensor,
}


def calls(look: Callable[[], object]) -> int:
    """Count the function calls, those of built-in functions included."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        look()
    except ResizePosError:
        pass
    finally:
        sys.setprofile(None)
    return count


def require_linear(look: Callable[[int], object]) -> None:
    look(50)  # imports and caches
    small, large = calls(lambda: look(200)), calls(lambda: look(800))
    assert large < 4.5 * small, (small, large)


@pytest.mark.parametrize("name", MANY)
def test_work_grows_with_the_file(name: str, tmp_path: Path) -> None:
    def look(count: int) -> None:
        with contextlib.suppress(ResizePosError):
            inspect_checkpoint(archive(tmp_path / f"{count}.pth", MANY[name](count)))

    require_linear(look)


def safetensors(path: Path, names: list[str], shape: tuple[int, ...]) -> Path:
    size = 4
    for length in shape:
        size *= length
    header = {
        name: {"dtype": "F32", "shape": list(shape), "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size * len(names)))
    return path


@pytest.mark.parametrize("name", ["m{}.pos_embed", "blocks.{}.mlp.weight"])
def test_work_grows_with_the_number_of_names(name: str, tmp_path: Path) -> None:
    def look(count: int) -> None:
        names = [name.format(i) for i in range(count)]
        inspect_checkpoint(safetensors(tmp_path / f"{count}.safetensors", names, (1, 17, 1)))

    require_linear(look)


def view(shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """Write a tensor that is a view of the archive's 512 bytes."""
    plain = encode_int(0) + encode_ints((1, 16, 8)) + encode_ints((128, 8, 1))
    own = encode_int(offset) + encode_ints(shape) + encode_ints(stride)
    return tensor().replace(plain, own)


def views(count: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    each = (encode_str(f"blocks.{i}.weight") + view(shape, stride, i % 100) for i in range(count))
    return b"\x80\x02}(" + encode_str("pos_embed") + tensor() + b"".join(each) + b"u."


REPEATED: dict[str, tuple[bytes, str, str]] = {
    "one tensor of 800 MB": (
        views(1, (10_000, 20_000), (0, 0)),
        ".safetensors",
        "a.pth: its tensors are views that share bytes",
    ),
    "a hundred that are small enough each": (
        views(100, (1000, 1000), (0, 0)),
        ".safetensors",
        "they would take 400000512 bytes",
    ),
    "the table itself": (
        b"\x80\x02}" + encode_str("pos_embed") + view((1, 16, 400_000), (0, 0, 0)) + b"s.",
        ".pth",
        "a.pth: pos_embed: [1, 16, 400000] is too large to read",
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_views_that_repeat_their_elements_are_not_written_out(name: str, tmp_path: Path) -> None:
    """A file of some kilobytes must not become one of gigabytes, on disk or in memory."""
    data, suffix, words = REPEATED[name]
    path = archive(tmp_path / "a.pth", data)
    target = tmp_path / f"out{suffix}"
    tracemalloc.start()
    try:
        with pytest.raises(ResizePosError) as refused:
            resize_checkpoint(path, from_grid="3x5", to_grid="5x7", prefix=1, output=target)
        assert tracemalloc.get_traced_memory()[1] < (64 << 20) + 40 * path.stat().st_size
    finally:
        tracemalloc.stop()
    assert words in refused.value.message
    assert [each.name for each in tmp_path.iterdir()] == ["a.pth"]


def test_an_entry_of_a_distributed_checkpoint_is_not_expanded_either() -> None:
    table = torch.zeros(1, 1, 1).expand(1, 16, 1_000_000)
    buffer = io.BytesIO()
    torch.save(table, buffer)
    with pytest.raises(ResizePosError, match="too large to read: it is a view of 4 bytes"):
        read_entry(buffer.getvalue(), "F32", (1, 16, 1_000_000))


HUGE = 2**63 - 1  # a stride of an axis of length 1 has no effect, whatever it is


def test_the_stride_of_an_axis_of_length_one_has_no_effect(tmp_path: Path) -> None:
    plain = b"\x80\x02}" + encode_str("pos_embed") + view((1, 16, 4), (HUGE, 4, 1)) + b"s."
    assert open_container(archive(tmp_path / "a.pth", plain)).read("pos_embed").shape == (1, 16, 4)
    turned = b"\x80\x02}" + encode_str("pos_embed") + view((1, 16, 4), (HUGE, 1, 16)) + b"s."
    assert open_container(archive(tmp_path / "b.pth", turned)).read("pos_embed").shape == (1, 16, 4)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("x/data.pkl", b"\x80\x02" + view((1, 16, 4), (HUGE, 1, 16)) + b".")
        file.writestr("x/data/0", np.arange(128, dtype=np.float32).tobytes())
    read = read_entry(buffer.getvalue(), "F32", (1, 16, 4))
    assert read[0, 3].tolist() == [3.0, 19.0, 35.0, 51.0]


def test_a_view_that_repeats_a_few_elements_is_written_out(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.pth", views(2, (50, 7), (0, 1)))
    target = tmp_path / "out.safetensors"
    resize_checkpoint(path, from_grid="3x5", to_grid="5x7", prefix=1, output=target)
    assert open_container(target).read("blocks.1.weight").shape == (50, 7)


MEASURE = """
import os, re, resource, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command line sets it
import numpy
from pathlib import Path
from resize_pos import inspect_checkpoint
from resize_pos.core.errors import ResizePosError
import resize_pos.containers.torch.zip_checkpoint, resize_pos.planning.locate
def status(field):
    return int(re.search(field + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
path = Path(sys.argv[1])
allowed = (64 << 20) + 40 * path.stat().st_size
resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + allowed,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
before = status("VmRSS")
try:
    inspect_checkpoint(path)
except ResizePosError as error:
    print(error.message[:200])
print((status("VmHWM") - before) / path.stat().st_size)
"""

HEAVY: dict[str, Callable[[], bytes]] = {
    "one-byte values": lambda: b"\x80\x02](" + b"N" * 3_000_000 + b"e.",
    "empty lists": lambda: b"\x80\x02](" + b"]" * 3_000_000 + b"e.",
    "pairs": lambda: b"\x80\x02}(" + b"NN" * 1_500_000 + b"u.",
    "marks": lambda: b"\x80\x02" + b"(" * 3_000_000 + b".",
    "memo entries": lambda: b"\x80\x04N" + b"\x94" * 3_000_000 + b".",
    "nested tuples": lambda: b"\x80\x02N" + b"\x85" * 3_000_000 + b".",
    "small numbers": lambda: b"\x80\x02](" + encode_int(7) * 1_500_000 + b"e.",
    "keys that are not a number": lambda: nan_keys(2000),
    "optimizers": lambda: optimizers(10_000),
    "keys with equal hashes": lambda: equal_hashes(50_000),
    "high memo number": lambda: b"\x80\x02Nr" + b"\xff" * 4 + b"p" + b"9" * 4000 + b"\n.",
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", HEAVY)
def test_memory_is_a_multiple_of_the_file(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.pth", HEAVY[name]())
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
