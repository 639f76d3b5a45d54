"""Published settings for fine-tuning after a change of resolution.

These are citations with their sources. We did not run them.
"""

from __future__ import annotations

from resize_pos.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """One published recipe for a change of resolution."""

    work: str
    settings: str
    source: str  # begins with the repository, as OWNER/NAME

    @property
    def link(self) -> str:
        """Where the repository is."""
        return f"https://github.com/{self.source.split(',')[0]}"

    def __str__(self) -> str:
        return f"{self.work}: {self.settings} ({self.source})"


PUBLISHED: tuple[Published, ...] = (
    Published(
        "DeiT-B, 224 → 384",
        "30 epochs, learning rate 5e-6 down to 5e-6, weight decay 1e-8",
        "facebookresearch/deit, README_deit.md, fine-tuning command",
    ),
    Published(
        "ViT, 224 → 384",
        "20,000 steps on ImageNet, batch 512, base rate 0.03 with cosine decay and 500 warm-up "
        "steps, gradient norm clipped at 1",
        "google-research/vision_transformer, vit_jax/configs/common.py",
    ),
    Published(
        "Swin-B, 224 → 384 (window 7 → 12)",
        "30 epochs, 5 of them warm-up, base rate 2e-5, weight decay 1e-8",
        "microsoft/Swin-Transformer, configs/swin/swin_base_patch4_window12_384_finetune.yaml",
    ),
)

NOTHING = "nothing was interpolated; no fine-tuning is needed."
SUGGESTION = (
    "evaluate at the new resolution first; if it falls short, train on briefly with a small "
    "learning rate, as in the published recipes."
)
TEXT_SUGGESTION = (
    "evaluate at the new length first; if it falls short, train on briefly with texts of that "
    "length and a small learning rate."
)
AFTER_A_WARNING = (
    "plan to train on at the new resolution: the tables changed more than resizing usually "
    "changes them. The published recipes use a small learning rate."
)
