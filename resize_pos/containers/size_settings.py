"""Names under which training code saves a size or a length beside the weights."""

from __future__ import annotations

SIZE_KEYS = frozenset(
    {
        "img_size",
        "image_size",
        "input_size",
        "img_dim",
        "imgsz",
        "image_resolution",
        "input_resolution",
        "img_resolution",
        "resolution",
        "crop_size",
        "train_size",
        "window_size",
        "max_position_embeddings",
        "n_positions",
        "context_length",
        "max_source_positions",
        "max_target_positions",
    }
)
MOST_SIDES = 6  # of a size or a shape that is compared with the tables
MOST_SETTINGS = 1000  # in one file; further ones are ignored

SAME_NAME = "the file has another value of the same name"
