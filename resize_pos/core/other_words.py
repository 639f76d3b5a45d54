"""What other tools call our commands and options. The answer to such a word names ours."""

from __future__ import annotations

from collections.abc import Mapping

# What other tools call our commands.
OTHER_COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("convert", "transfer", "interpolate", "run"), "resize"),
    **dict.fromkeys(("show", "info", "view", "list", "ls", "print", "describe"), "inspect"),
    **dict.fromkeys(("check", "validate", "test"), "verify"),
    **dict.fromkeys(("diff", "cmp"), "compare"),
    **dict.fromkeys(("why", "error"), "explain"),
    **dict.fromkeys(("models", "layouts"), "families"),
    "version": "--version",
}

# As keyword arguments; on the command line the same words have dashes.
OTHER_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("size", "img_size", "image_size", "imgsz", "resolution", "input_size"), "to"),
    **dict.fromkeys(("target", "target_size", "new_size", "output_size", "to_size"), "to"),
    **dict.fromkeys(("from", "from_size", "source_size", "old_size"), "from_"),
    **dict.fromkeys(("out", "output_file", "output_path", "save", "dest"), "output"),
    **dict.fromkeys(("grid", "new_grid", "grid_size", "patches"), "to_grid"),
    **dict.fromkeys(("mode", "interpolation", "interp"), "method"),
    **dict.fromkeys(("overwrite", "yes", "clobber", "exist_ok"), "force"),
    **dict.fromkeys(("learning_rate", "base_lr"), "lr"),
    **dict.fromkeys(("patch_size",), "patch"),
    **dict.fromkeys(("num_prefix_tokens", "num_extra_tokens"), "prefix"),
    **dict.fromkeys(("seq_len", "max_length", "context_length"), "to_length"),
}
