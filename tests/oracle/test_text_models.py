"""Files of real text models get another length and run at it, loaded strictly by their library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
import transformers as hf
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from resize_pos import resize_checkpoint
from tests.support.builders import raw_tensors

BODY = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}
SEQ = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 99,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 16,
}


@dataclass(frozen=True)
class Model:
    """How to build a library's model, which lengths it has, and what its rows are."""

    cls: str
    config: str
    options: Mapping[str, Any]
    key: str = "max_position_embeddings"  # where its config states the length
    counted: int = 0  # reserved rows that the config counts
    reserved: int = 0
    tables: int = 1
    part: str | None = None  # the sub-config that holds the length


PADDED = {"pad_token_id": 1}
MODELS: Mapping[str, Model] = {
    "BERT": Model("BertForMaskedLM", "BertConfig", BODY),
    "ALBERT": Model("AlbertModel", "AlbertConfig", BODY | {"embedding_size": 16}),
    "ELECTRA": Model("ElectraModel", "ElectraConfig", BODY | {"embedding_size": 16}),
    "DistilBERT": Model(
        "DistilBertModel",
        "DistilBertConfig",
        {"dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},
    ),
    "RoBERTa": Model("RobertaForMaskedLM", "RobertaConfig", BODY | PADDED, counted=2, reserved=2),
    "RoBERTa without a head": Model(
        "RobertaModel", "RobertaConfig", BODY | PADDED, counted=2, reserved=2
    ),
    "XLM-R": Model("XLMRobertaModel", "XLMRobertaConfig", BODY | PADDED, counted=2, reserved=2),
    "CamemBERT": Model("CamembertModel", "CamembertConfig", BODY | PADDED, counted=2, reserved=2),
    "MPNet": Model("MPNetModel", "MPNetConfig", BODY | PADDED, counted=2, reserved=2),
    "RoBERTa with another padding": Model(
        "RobertaModel", "RobertaConfig", BODY | {"pad_token_id": 3}, counted=4, reserved=4
    ),
    "LiLT": Model(
        "LiltModel",
        "LiltConfig",
        BODY | PADDED | {"channel_shrink_ratio": 4, "hidden_size": 48},
        counted=2,
        reserved=2,
        tables=2,
    ),
    "YOSO": Model("YosoModel", "YosoConfig", BODY | {"use_expectation": True}, reserved=2),
    "Nyströmformer": Model(
        "NystromformerModel",
        "NystromformerConfig",
        BODY | {"num_landmarks": 64, "segment_means_seq_len": 64, "conv_kernel_size": 3},
        reserved=2,
    ),
    "DeBERTa": Model(
        "DebertaModel",
        "DebertaConfig",
        BODY
        | {
            "relative_attention": True,
            "max_relative_positions": 16,
            "pos_att_type": ["c2p", "p2c"],
        },
    ),
    "OPT": Model(
        "OPTForCausalLM",
        "OPTConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "vocab_size": 99,
            "word_embed_proj_dim": 32,
        },
        reserved=2,
    ),
    "BioGPT": Model("BioGptModel", "BioGptConfig", BODY, reserved=2),
    "BART": Model("BartModel", "BartConfig", SEQ, reserved=2, tables=2),
    "mBART": Model("MBartModel", "MBartConfig", SEQ, reserved=2, tables=2),
    "Blenderbot": Model("BlenderbotModel", "BlenderbotConfig", SEQ, tables=2),
    "GPT-2": Model(
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 99},
        key="n_positions",
    ),
    "GPT": Model(
        "OpenAIGPTModel",
        "OpenAIGPTConfig",
        {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 99},
        key="n_positions",
    ),
    "CLIP text": Model("CLIPTextModel", "CLIPTextConfig", BODY | {"eos_token_id": 98}),
    "SigLIP text": Model("SiglipTextModel", "SiglipTextConfig", BODY),
    "CLIP": Model(
        "CLIPModel",
        "CLIPConfig",
        {"vision_config": VISION, "text_config": BODY | {"eos_token_id": 98}},
        part="text_config",
    ),
}
SOURCE, TARGETS = 40, (70, 23)  # neither is round: only the config can tell reserved rows
CASES = [(name, target) for name in MODELS for target in TARGETS]


def save(model: Model, length: int, folder: Path) -> Path:
    """Write a model as its library does, config included."""
    stated = {model.key: length + model.counted}
    options = dict(model.options)
    if model.part is not None:
        options[model.part] = options[model.part] | stated
    else:
        options |= stated
    torch.manual_seed(0)
    built = getattr(hf, model.cls)(getattr(hf, model.config)(**options))
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if "pos" in name or "wpe" in name:
                parameter.normal_()
    built.save_pretrained(folder)
    return folder / "model.safetensors"


def edit_length(folder: Path, model: Model, length: int) -> None:
    path = folder / "config.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    part = document if model.part is None else document[model.part]
    part[model.key] = length + model.counted
    path.write_text(json.dumps(document), encoding="utf-8")


def run_at(loaded: Any, length: int) -> torch.Tensor:
    ids = torch.randint(5, 90, (1, length))
    inputs = {"input_ids": ids}
    if loaded.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    if isinstance(loaded, hf.CLIPModel):
        inputs["pixel_values"] = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        output = loaded.eval()(**inputs)
    values: torch.Tensor = output.text_embeds if isinstance(loaded, hf.CLIPModel) else output[0]
    assert torch.isfinite(values).all()
    return values


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # DeBERTa's own code
@pytest.mark.parametrize(("name", "target"), CASES)
def test_a_converted_text_model_loads_strictly_and_runs_at_its_new_length(
    name: str, target: int, tmp_path: Path
) -> None:
    model = MODELS[name]
    source = save(model, SOURCE, tmp_path / "source")
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_bytes((source.parent / "config.json").read_bytes())
    edit_length(folder, model, target)
    output = folder / "model.safetensors"
    recipe = {"length_method": "linear"} if target > SOURCE else {}
    report = resize_checkpoint(source, to_length=target, output=output, **recipe)  # type: ignore[arg-type]
    assert len(report.plan.changes) == model.tables
    for step in report.plan.changes:
        assert (step.table.length, step.table.prefix) == (SOURCE, model.reserved)
    before, after = raw_tensors(source)[0], raw_tensors(output)[0]
    changed = {step.table.name for step in report.plan.changes}
    assert {key for key in before if before[key] != after[key]} == changed
    for step in report.plan.changes:
        kept = model.reserved * step.target_shape[1] * 4
        key = step.table.name
        assert before[key][1][:kept] == after[key][1][:kept]
    loaded, info = getattr(hf, model.cls).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    run_at(loaded, target)


def test_a_truncated_causal_model_gives_the_same_logits(tmp_path: Path) -> None:
    """Cutting positions off loses nothing for inputs that still fit."""
    model = MODELS["OPT"]
    source = save(model, SOURCE, tmp_path / "source")
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_bytes((source.parent / "config.json").read_bytes())
    edit_length(folder, model, 17)
    resize_checkpoint(source, to=17, output=folder / "model.safetensors")
    outputs = []
    for place in (source.parent, folder):
        torch.manual_seed(1)
        outputs.append(run_at(hf.OPTForCausalLM.from_pretrained(place), 17))
    assert torch.equal(*outputs)


def whisper(frames: int, tokens: int) -> Any:
    config = hf.WhisperConfig(
        **(SEQ | {"pad_token_id": 98, "bos_token_id": 97, "eos_token_id": 96}),
        num_mel_bins=8,
        max_source_positions=frames,
        max_target_positions=tokens,
    )
    return hf.WhisperModel(config)


@pytest.mark.parametrize("frames", [160, 50])
def test_whisper_s_encoder_becomes_the_library_s_own_table(frames: int, tmp_path: Path) -> None:
    whisper(100, 48).save_pretrained(tmp_path)
    report = resize_checkpoint(tmp_path / "model.safetensors", to=frames, from_=100)
    assert report.output is not None
    target = whisper(frames, 48)
    tensors = load_file(report.output)
    (key,) = [step.table.name for step in report.plan.changes]
    own = target.encoder.embed_positions.weight.detach()
    assert float((tensors[key] - own).abs().max()) < 2e-5  # it computes phases in float32
    target.load_state_dict(tensors, strict=True)
    mel = torch.randn(1, 8, 2 * frames)
    with torch.no_grad():
        output = target.eval()(input_features=mel, decoder_input_ids=torch.tensor([[96, 5, 6]]))
    assert torch.isfinite(output.last_hidden_state).all()


def test_whisper_s_decoder_follows_the_recipe(tmp_path: Path) -> None:
    whisper(100, 48).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    report = resize_checkpoint(path, to=96, from_=48, length_method="tile")
    assert report.output is not None
    whisper(100, 96).load_state_dict(load_file(report.output), strict=True)


# open_clip


def clip_config(length: int, **text: Any) -> dict[str, Any]:
    vision = {"image_size": 32, "patch_size": 16, "layers": 1, "width": 64, "head_width": 32}
    words = {"context_length": length, "vocab_size": 99, "width": 64, "heads": 2, "layers": 1}
    return {"embed_dim": 32, "vision_cfg": vision, "text_cfg": words | text}


def coca(length: int) -> Any:
    config = clip_config(length, embed_cls=True, output_tokens=True)
    pooled = {"attentional_pool": True, "attn_pooler_queries": 8, "attn_pooler_heads": 2}
    multimodal = {
        "context_length": length,
        "vocab_size": 99,
        "width": 64,
        "heads": 2,
        "layers": 1,
        "dim_head": 32,
    }
    config["vision_cfg"] |= pooled | {"output_tokens": True}
    return open_clip.CoCa(**config, multimodal_cfg=multimodal)


def clip(length: int) -> Any:
    return open_clip.CLIP(**clip_config(length))


def custom_clip(length: int) -> Any:
    return open_clip.CustomTextCLIP(**clip_config(length))


OPEN_CLIP: Mapping[str, tuple[Callable[[int], Any], int]] = {
    "CLIP": (clip, 0),
    "CustomTextCLIP": (custom_clip, 0),
    "CoCa": (coca, 1),
}


@pytest.mark.parametrize("name", OPEN_CLIP)
@pytest.mark.parametrize("target", [31, 12])
def test_open_clip_texts_load_strictly_and_equal_its_own_resize(
    name: str, target: int, tmp_path: Path
) -> None:
    build, suffix = OPEN_CLIP[name]
    torch.manual_seed(0)
    source = {key: tensor.contiguous() for key, tensor in build(20).state_dict().items()}
    path = tmp_path / "clip.safetensors"
    save_file(source, path)
    report = resize_checkpoint(path, to_length=target, length_method="linear")
    assert report.output is not None
    (step,) = report.plan.changes
    assert (step.table.length, step.table.suffix) == (20, suffix)
    tensors, model = load_file(report.output), build(target)
    model.load_state_dict(tensors, strict=True)
    with torch.no_grad():
        features = model.eval().encode_text(torch.randint(1, 90, (2, target)))
    assert torch.isfinite(features).all()
    key = step.table.name
    if suffix:  # open_clip would interpolate the cls row away; ours stays what it was
        assert torch.equal(tensors[key][-1], source[key][-1])
        rows: NDArray[np.float32] = source[key][:-1].numpy()
        expected = torch.nn.functional.interpolate(
            torch.from_numpy(rows.T[None].copy()), size=target, mode="linear"
        )[0].T
        torch.testing.assert_close(tensors[key][:-1], expected, rtol=0, atol=1e-5)
        return
    own = dict(source)
    open_clip.model.resize_text_pos_embed(own, model)
    torch.testing.assert_close(tensors[key], own[key], rtol=0, atol=1e-5)
