"""A table that does not fit into memory is refused from the plan, in a dry run, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resize_pos.core import memory
from tests.cli.test_cli import run

__all__ = ["run"]  # the fixture is used by its name


@pytest.mark.parametrize("more", [[], ["-n"]])
def test_a_target_beyond_memory_is_refused_with_the_numbers(
    more: list[str], run: Any, vit_file: Path
) -> None:
    done = run("vit.safetensors", "--to", "3200000x1600000", *more)
    assert done.code == 1
    assert "pos_embed would grow from 4×4 to 200000×100000, which takes 640.0 GB" in done.err
    assert "computing it needs" in done.err and "are available" in done.err
    assert "is --to 3200000x1600000 what you meant?" in done.err
    assert "bug" not in done.err
    assert [path.name for path in Path().iterdir()] == ["vit.safetensors"]


def test_the_limit_is_what_the_system_can_give(
    run: Any, vit_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("vit.safetensors", "--to", "32000x48000", "-n")  # 192 MB
    monkeypatch.setattr("resize_pos.core.memory.available_memory", lambda: 10**9)
    assert run(*words).code == 0
    monkeypatch.setattr("resize_pos.core.memory.available_memory", lambda: 3 * 10**8)
    assert "300.0 MB are available" in run(*words).err
    monkeypatch.setattr("resize_pos.core.memory.available_memory", lambda: None)  # it does not tell
    assert run(*words).code == 0


def test_a_plan_states_the_bytes_of_its_output(run: Any, vit_file: Path) -> None:
    import json

    words = ("vit.safetensors", "--to", "96x160")
    planned = json.loads(run(*words, "-n", "--json").out)["output_bytes"]
    assert f"(at most {planned:,} bytes)" in run(*words, "-n").out
    assert run(*words).code == 0
    written = Path("vit-96x160.safetensors").stat().st_size
    assert written <= planned <= written + 16384
    assert json.loads(run(*words, "-f", "--json").out)["output_bytes"] is None


def test_the_smallest_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  3000 kB\nSwapFree: 1000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_of_process", lambda: None)
    assert memory.available_memory() == 4000 * 1024
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("3000\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("1000\n")
    (tmp_path / "memory" / "memory.stat").write_text("cache 9\n")
    assert memory.available_memory() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("500\n")
    (tmp_path / "memory.stat").write_text("file 300\ninactive_file 150\nactive_file 50\n")
    assert memory.available_memory() == 4000 * 1024
    (tmp_path / "memory.max").write_text("1500\n")
    assert memory.available_memory() == 1200
    monkeypatch.setattr(memory, "_of_process", lambda: 600)
    assert memory.available_memory() == 600
