"""`explain`: messages that people paste, and the command that helps with each."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from resize_pos.planning.messages import explain
from tests.cli.test_cli import run

__all__ = ["run"]  # the fixture is used by its name


def mismatch(name: str, old: list[int], new: list[int]) -> str:
    return (
        f"size mismatch for {name}: copying a param with shape torch.Size({old}) from checkpoint, "
        f"the shape in current model is torch.Size({new})."
    )


# message → the options of the command, and a part of what is said
MESSAGES: dict[str, tuple[str, str | None, str]] = {
    "timm": (mismatch("pos_embed", [1, 197, 768], [1, 577, 768]), "--to-grid 24x24", "14×14"),
    "without cls": (
        mismatch("pos_embed", [1, 196, 768], [1, 576, 768]),
        "--to-grid 24x24",
        "without",
    ),
    "registers": (mismatch("pos_embed", [1, 201, 768], [1, 581, 768]), "--to-grid 24x24", "5 ext"),
    "smaller": (mismatch("pos_embed", [1, 577, 768], [1, 197, 768]), "--to-grid 14x14", "24×24"),
    "a wide model": (
        mismatch("pos_embed", [1, 197, 768], [1, 769, 768]),
        "--to HEIGHTxWIDTH",
        "1 + 24×32",
    ),
    "open_clip": (
        mismatch("visual.positional_embedding", [50, 768], [145, 768]),
        "--to-grid 12x12",
        "7×7",
    ),
    "its text": (
        mismatch("positional_embedding", [77, 512], [248, 512]),
        "--to-length 248 --length-method linear",
        "77 positions of a text",
    ),
    "BERT": (
        mismatch("bert.embeddings.position_embeddings.weight", [512, 768], [256, 768]),
        "--to-length 256",
        "512 positions",
    ),
    "SAM's grid": (
        mismatch("image_encoder.pos_embed", [1, 64, 64, 768], [1, 32, 48, 768]),
        "--to-grid 32x48",
        "64×64",
    ),
    "SAM's offsets": (
        mismatch("image_encoder.blocks.2.attn.rel_pos_h", [127, 64], [63, 64]),
        "--to SIZE",
        "64 cells",
    ),
    "Swin": (
        mismatch("layers.0.blocks.0.attn.relative_position_bias_table", [169, 4], [529, 4]),
        "--to-window 12",
        "window 7×7",
    ),
    "BEiT": (
        mismatch("blocks.0.attn.relative_position_bias_table", [732, 12], [2212, 12]),
        "--to-grid 24x24",
        "14×14",
    ),
    "a buffer": (mismatch("layers.0.attn_mask", [64, 49, 49], [16, 144, 144]), None, "recomputes"),
    "a head": (mismatch("head.weight", [1000, 768], [10, 768]), None, "1000 classes"),
    "a patch": (
        mismatch("patch_embed.proj.weight", [768, 3, 16, 16], [768, 3, 14, 14]),
        "--to-patch 14",
        "16×16 pixels",
    ),
    "another width": (mismatch("pos_embed", [1, 197, 768], [1, 197, 1024]), None, "another model"),
    "another depth": (mismatch("blocks.0.mlp.fc1.bias", [3072, 2], [4096, 3]), None, "architect"),
    "transformers 4": (
        "- vit.embeddings.position_embeddings: found shape torch.Size([1, 197, 768]) in the "
        "checkpoint and torch.Size([1, 577, 768]) in the model instantiated",
        "--to-grid 24x24",
        "14×14",
    ),
    "transformers 5": (
        "vit.embeddings.position_embeddings | MISMATCH | Reinit due to size mismatch - ckpt: "
        "torch.Size([1, 197, 768]) vs model:torch.Size([1, 577, 768])",
        "--to-grid 24x24",
        "14×14",
    ),
    "image tokens": (
        "ValueError: Image features and image tokens do not match, tokens: 576, features: 2304",
        "--to SIZE",
        "576 = 24×24 and 2304 = 48×48",
    ),
    "the other spelling": (
        "Image features and image tokens do not match: tokens: 700, features 1400",
        "--to SIZE",
        "verify FOLDER --config",
    ),
    "timm's check": (
        "AssertionError: Input height (384) doesn't match model (224).",
        "--to 384",
        "img_size=384",
    ),
    "transformers' check": (
        "ValueError: Input image size (384*512) doesn't match model (224*224).",
        "--to 384x512",
        "img_size=(384, 512)",
    ),
    "an addition": (
        "RuntimeError: The size of tensor a (577) must match the size of tensor b (197) at "
        "non-singleton dimension 1",
        "--to-grid 24x24",
        "384 px at patch 16",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_message_is_explained_with_the_command(case: str) -> None:
    message, options, words = MESSAGES[case]
    (found,) = explain(f"some log\n{message}\nmore of it")
    assert found.options == options
    assert words in " ".join(found.meaning)


def test_torch_still_writes_the_message_that_is_read() -> None:
    model = torch.nn.Module()
    model.pos_embed = torch.nn.Parameter(torch.zeros(1, 577, 8))
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict({"pos_embed": torch.zeros(1, 197, 8)})
    (found,) = explain(str(caught.value))
    assert found.options == "--to-grid 24x24"


def test_timm_still_writes_the_message_that_is_read() -> None:
    from timm.layers import PatchEmbed

    with pytest.raises(AssertionError) as caught:
        PatchEmbed(img_size=64)(torch.zeros(1, 3, 96, 64))
    (found,) = explain(str(caught.value))
    assert found.options == "--to 96"


def test_transformers_still_writes_the_messages_that_are_read() -> None:
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = ViTModel(ViTConfig(image_size=64, intermediate_size=8, **sizes))
    with pytest.raises(ValueError, match="doesn't match model") as caught:
        model(torch.zeros(1, 3, 96, 64))
    (found,) = explain(str(caught.value))
    assert found.options == "--to 96x64"


def test_one_table_per_block_is_told_once() -> None:
    name = "layers.0.blocks.{}.attn.relative_position_bias_table"
    log = "\n".join(mismatch(name.format(i), [169, 4], [529, 4]) for i in range(12))
    (found,) = explain(log)
    assert "and 11 alike" in found.title


def test_other_additions_are_not_explained() -> None:
    assert not explain(
        "The size of tensor a (512) must match the size of tensor b (77) at non-singleton "
        "dimension 1"
    )
    assert not explain("size mismatch, somewhere")


def test_the_command_line_prints_what_to_run(run: Any) -> None:
    done = run("explain", MESSAGES["timm"][0])
    assert done.code == 0
    assert done.out.endswith("run: resize-pos CHECKPOINT --to-grid 24x24\n")
    named = run("explain", MESSAGES["timm"][0], "--checkpoint", "my vit.pth")
    assert named.out.endswith("run: resize-pos 'my vit.pth' --to-grid 24x24\n")
    document = json.loads(run("explain", MESSAGES["timm"][0], "--json").out)
    (entry,) = document["explanations"]
    assert entry["command"] == "resize-pos CHECKPOINT --to-grid 24x24"


def test_a_whole_log_comes_from_stdin_and_names_its_checkpoint(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f"loading /data/vit_base.pth …\n\tTraceback\n\t{MESSAGES['timm'][0]}\n\xff".encode()
    stdin = SimpleNamespace(buffer=io.BytesIO(log + b"\xff\xfe"), isatty=lambda: False)
    monkeypatch.setattr("sys.stdin", stdin)
    done = run("explain")
    assert done.code == 0, done.err
    assert "run: resize-pos /data/vit_base.pth --to-grid 24x24" in done.out


def test_nothing_known_is_an_error_that_lists_what_is(run: Any) -> None:
    done = run("explain", "it broke")
    assert done.code == 1
    assert "size mismatches" in done.err


def test_the_command_does_what_it_says(run: Any, vit_file: Path) -> None:
    """The grid of the message fits the file that it is about."""
    (found,) = explain(mismatch("pos_embed", [1, 17, 8], [1, 37, 8]))
    assert found.options is not None
    assert run("vit.safetensors", *found.options.split(), "-q").code == 0
    from resize_pos.containers.detect import open_container

    assert open_container(Path("vit-96.safetensors")).tensors["pos_embed"].shape == (1, 37, 8)
