"""The experiment with fixed heads: its figures in the docs are those of its results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import fixed_heads
from benchmarks.fixed_heads import Outcome
from benchmarks.networks.small_vits import EXPERIMENT

TEXT = (Path(__file__).parents[2] / "docs" / "artifacts.md").read_text(encoding="utf-8")


def outcome(seed: int, loss: float, error: float, variant: str = "restore norms") -> Outcome:
    return Outcome("net", seed, 0.5, (3, 4), variant, False, 1.0, 0.8, loss, error, 0.02, 0.001)


def test_the_page_shows_the_last_run() -> None:
    inside = TEXT.split(fixed_heads.BEGIN)[1].split(fixed_heads.END)[0].strip()
    assert inside == fixed_heads.report(fixed_heads.read_results()).strip()


def test_four_networks_and_three_seeds_were_run() -> None:
    found = fixed_heads.read_results()
    assert {(one.network, one.seed) for one in found} == {
        (name, seed) for name in EXPERIMENT for seed in range(3)
    }
    assert {one.variant for one in found} == {*fixed_heads.VARIANTS, fixed_heads.KERNEL} - {
        fixed_heads.PLAIN
    }


def test_the_larger_standard_error_counts() -> None:
    alike = [outcome(seed, -0.1, 0.03) for seed in range(3)]
    mean, error = fixed_heads.pooled(alike, "loss_difference", "loss_error")
    assert mean == pytest.approx(-0.1)
    assert error == pytest.approx(0.03 / 3**0.5)
    apart = [outcome(seed, loss, 0.001) for seed, loss in enumerate((-0.2, 0.0, 0.2))]
    assert fixed_heads.pooled(apart, "loss_difference", "loss_error")[1] == pytest.approx(
        0.2 / 3**0.5
    )


def test_only_clear_differences_are_bold() -> None:
    clear = fixed_heads.report([outcome(seed, -0.1, 0.01) for seed in range(3)])
    assert "**−0.100 ± 0.006 (+2.0 ± 0.1)**" in clear
    unclear = fixed_heads.report([outcome(seed, -0.1, 0.2) for seed in range(3)])
    assert "| net | −0.100 ± 0.115 (+2.0 ± 0.1) |" in unclear
