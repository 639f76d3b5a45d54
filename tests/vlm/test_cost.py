"""A large language model around a small tower costs what the tower's shard costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure import TOOL, Cost
from tests.support.builders import raw_tensors, write_safetensors

SHARDS = 3
PLAIN = 100 << 20  # bytes of each shard of the language model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the counters of /proc")


def write_llava(folder: Path) -> None:
    """Write a CLIP tower of 6×6 cells in one shard, and sparse shards of a language model."""
    folder.mkdir()
    tower = "vision_tower.vision_model.embeddings"
    names = {
        f"{tower}.class_embedding": np.zeros(8, np.float32),
        f"{tower}.patch_embedding.weight": np.zeros((8, 3, 4, 4), np.float32),
        f"{tower}.position_embedding.weight": np.arange(37 * 8, dtype=np.float32).reshape(37, 8),
    }
    shards = SHARDS + 1
    files = dict.fromkeys(names, f"model-00001-of-0000{shards}.safetensors")
    write_safetensors(folder / f"model-00001-of-0000{shards}.safetensors", names)
    for number in range(2, shards + 1):
        file, name = f"model-0000{number}-of-0000{shards}.safetensors", f"language.{number}.weight"
        entry = {"dtype": "F32", "shape": [PLAIN // 4], "data_offsets": [0, PLAIN]}
        header = json.dumps({name: entry}).encode().ljust(120)
        with (folder / file).open("wb") as shard:
            shard.write(len(header).to_bytes(8, "little") + header)
            shard.truncate(8 + len(header) + PLAIN)
        files[name] = file
    index = {"metadata": {"total_size": SHARDS * PLAIN}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    vision = {"model_type": "clip_vision_model", "image_size": 24, "patch_size": 4}
    config = {"model_type": "llava", "vision_config": vision, "image_seq_length": 36}
    (folder / "config.json").write_text(json.dumps(config))


def run(command: list[str]) -> Cost:
    """Measure a command from a small process: a new process begins with its parent's peak."""
    script = (
        "import dataclasses, json, sys; from benchmarks.measure import run; "
        "print(json.dumps(dataclasses.astuple(run(sys.argv[1:]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return Cost(*json.loads(done.stdout))


def test_untouched_shards_cost_nothing_with_links_and_no_memory_without(tmp_path: Path) -> None:
    source = tmp_path / "llava"
    write_llava(source)
    command = [*TOOL, str(source), "--to", "32", "-q", "-o"]
    linked = run([*command, str(tmp_path / "linked"), "--link"])
    copied = run([*command, str(tmp_path / "copied")])
    assert linked.written < 4 << 20  # a first run also writes compiled modules
    assert linked.read < 32 << 20  # mostly Python's own modules
    assert copied.written < SHARDS * PLAIN + (4 << 20)
    assert max(linked.peak_rss, copied.peak_rss) < 100 << 20
    for name in ("linked", "copied"):
        folder = tmp_path / name
        assert json.loads((folder / "config.json").read_text())["vision_config"]["image_size"] == 32
        for shard in sorted(source.glob("model-0000[2-9]*")):
            same = (folder / shard.name).samefile(shard)
            assert same is (name == "linked")
            assert (folder / shard.name).stat().st_size == shard.stat().st_size
        tensors, _ = raw_tensors(next(folder.glob("model-00001*")))
        (table,) = (info for key, info in tensors.items() if "position_embedding" in key)
        assert len(table[1]) == 65 * 8 * 4
