"""Model folders: built with the real libraries, converted, and loaded with them again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from resize_pos import ResizePosError, inspect_checkpoint, resize_checkpoint
from resize_pos.cli.app import _run
from resize_pos.configs.values import ConfigEdit
from resize_pos.containers import model_folder
from resize_pos.containers.detect import open_container
from resize_pos.containers.io.link_or_copy import LINK_FROM
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.stage_names import PART_SUFFIX
from resize_pos.core.errors import ContainerError, GeometryError, OutputError
from resize_pos.report import Report, Status
from resize_pos.report.json import report_document
from tests.support.builders import raw_tensors, vit, write_safetensors
from tests.support.folder_builders import HF_MODELS, TEXT_MODELS, files, save_hf, vit_model

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers and timm warn about themselves

IMAGE = np.random.default_rng(0).integers(0, 255, (70, 90, 3), np.uint8)


def small_folder(folder: Path, **weights: Mapping[str, Any]) -> Path:
    """A folder written without any library: a 4×4 grid at patch 16."""
    folder.mkdir()
    for name, tensors in (weights or {"model": vit()}).items():
        write_safetensors(folder / f"{name.replace('__', '.')}.safetensors", tensors)
    (folder / "config.json").write_text('{"image_size": 64,\t"other": [1,2]}\n')
    return folder


def loaded(model_class: Any, folder: Path) -> Any:
    """Load strictly: nothing missing, nothing left over, no shape that does not fit."""
    model, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def require_only_planned(source: Path, report: Report) -> None:
    """Hold every byte of the new folder against the old one and the plan."""
    assert report.output is not None
    before, after = files(source), files(report.output)
    assert list(before) == list(after)
    edits: dict[str, list[ConfigEdit]] = {}
    for edit in report.plan.config_edits:
        edits.setdefault(edit.file, []).append(edit)
    for name in before:
        if name in edits:
            assert without(json.loads(before[name]), edits[name]) == without(
                json.loads(after[name]), edits[name]
            )
        elif name.endswith((".safetensors", ".bin", ".index.json")):
            continue  # the tensors are compared by the caller
        else:
            assert before[name] == after[name], name
    changed = {step.table.name for step in report.plan.changes}
    for name in before:
        if name.endswith(".safetensors"):
            old, _ = raw_tensors(source / name)
            new, _ = raw_tensors(report.output / name)
            assert list(old) == list(new)
            for tensor in old:
                if tensor not in changed and f"{name}/{tensor}" not in changed:
                    assert old[tensor] == new[tensor]


def without(document: Any, edits: list[ConfigEdit]) -> Any:
    """Remove the edited values, so that the rest can be compared."""
    for edit in edits:
        part = document
        for key in edit.path[:-1]:
            part = part.get(key, {})
        part.pop(edit.path[-1], None)
    return {key: value for key, value in document.items() if value != {}}


@pytest.mark.parametrize("name", HF_MODELS)
def test_a_transformers_folder_loads_at_the_new_size(name: str, tmp_path: Path) -> None:
    case = HF_MODELS[name]
    source = save_hf(case.model(), case.processor(), tmp_path / "model")
    report = resize_checkpoint(source, to=case.to)
    assert report.output == tmp_path / f"model-{case.to}"
    require_only_planned(source, report)
    assert report.plan.config_edits
    model = loaded(case.model_class(), report.output)
    processor = type(case.processor()).from_pretrained(report.output)
    pixels = processor(IMAGE, return_tensors="pt")["pixel_values"]
    height, width = (int(part) for part in (*case.to.split("x"), case.to)[:2])
    assert pixels.shape[2:] == (height, width)
    with torch.no_grad():
        case.forward(model, pixels)
    assert resize_checkpoint(report.output, to=case.to).status is Status.UNCHANGED


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_a_text_model_takes_longer_texts(name: str, tmp_path: Path) -> None:
    import transformers

    make, key, before, after = TEXT_MODELS[name]
    model = make(transformers)
    source = save_hf(model, None, tmp_path / "model")
    (source / "tokenizer_config.json").write_text('{"model_max_length": 64}')
    report = resize_checkpoint(source, to=96, length_method="linear")
    assert report.output is not None
    require_only_planned(source, report)
    edits = {(edit.file, edit.key): (edit.before, edit.after) for edit in report.plan.config_edits}
    assert edits == {
        ("config.json", key): (before, after),
        ("tokenizer_config.json", "model_max_length"): (64, 96),
    }
    with torch.no_grad():
        loaded(type(model), report.output)(input_ids=torch.full((1, 96), 7))


def test_a_longer_text_says_nothing_about_images(tmp_path: Path) -> None:
    case = HF_MODELS["clip"]
    source = save_hf(case.model(), None, tmp_path / "model")
    (source / "preprocessor_config.json").write_text('{"size": 32, "crop_size": 32}')
    report = resize_checkpoint(source, to_length=20, length_method="linear")
    assert report.output is not None
    keys = [edit.key for edit in report.plan.config_edits]
    assert keys == ["text_config.max_position_embeddings"]
    assert (
        loaded(case.model_class(), report.output).config.text_config.max_position_embeddings == 20
    )


@pytest.mark.parametrize("link", [False, True])
def test_unchanged_shards_are_copied_or_linked_and_the_index_is_up_to_date(
    link: bool, tmp_path: Path
) -> None:
    model = vit_model(hidden_size=192, intermediate_size=768)
    source = save_hf(model, None, tmp_path / "model", max_shard_size="2MB")
    index = json.loads((source / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert len(shards) >= 3
    report = resize_checkpoint(source, to="96x128", link=link)
    assert report.output is not None
    require_only_planned(source, report)
    home = index["weight_map"]["vit.embeddings.position_embeddings"]
    linked = 0
    for shard in shards:
        old, new = source / shard, report.output / shard
        assert (old.read_bytes() == new.read_bytes()) == (shard != home)
        linked += old.samefile(new)
    large = [s for s in shards if (source / s).stat().st_size >= LINK_FROM and s != home]
    assert len(large) > 0
    assert linked == report.copied.linked == (len(large) if link else 0)
    after = json.loads((report.output / "model.safetensors.index.json").read_text())
    assert after["weight_map"] == index["weight_map"]
    tensors = open_container(report.output).tensors.values()
    assert after["metadata"]["total_size"] == sum(info.nbytes for info in tensors)
    assert after["metadata"]["total_parameters"] == sum(info.elements for info in tensors)
    loaded(type(model), report.output)


def test_nothing_is_linked_unless_asked_for(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    blob = source / "blob.dat"
    blob.write_bytes(bytes(LINK_FROM))
    linked = resize_checkpoint(source, to=96, output=tmp_path / "linked", link=True)
    copied = resize_checkpoint(source, to=96, output=tmp_path / "copied")
    assert blob.samefile(tmp_path / "linked" / "blob.dat")
    assert not blob.samefile(tmp_path / "copied" / "blob.dat")
    assert (linked.copied.linked, copied.copied.linked) == (1, 0)
    assert files(tmp_path / "linked") == files(tmp_path / "copied")
    # Small files are never linked: an edit would also change the source.
    assert not (source / "config.json").samefile(tmp_path / "linked" / "config.json")


def test_the_index_file_alone_gives_a_folder_of_shards(tmp_path: Path) -> None:
    source = save_hf(vit_model(), None, tmp_path / "model", max_shard_size="50KB")
    report = resize_checkpoint(source / "model.safetensors.index.json", to="96x128")
    assert report.output == tmp_path / "model-96x128"
    names = {path.name for path in report.output.iterdir()}
    assert names == {path.name for path in source.iterdir() if "model" in path.name}
    assert {advice.key for advice in report.config_advice} == {"image_size"}
    assert open_container(report.output).tensors.keys() == open_container(source).tensors.keys()


TIMM = {
    "default": {},
    "stated": {"model_args": {"img_size": 64}},
}


@pytest.mark.parametrize("arguments", TIMM.values(), ids=TIMM)
@pytest.mark.parametrize("fixed", [True, False])
def test_a_timm_folder_builds_at_the_new_size(
    arguments: dict[str, Any], fixed: bool, tmp_path: Path
) -> None:
    import timm
    from timm.models import save_for_hf

    small = {"embed_dim": 48, "depth": 1, "num_heads": 3}
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=3, **small)
    source = tmp_path / "model"
    model_args = {**small, **arguments.get("model_args", {})}
    save_for_hf(model, str(source), model_args=model_args, safe_serialization=True)
    config = json.loads((source / "config.json").read_text())
    config["pretrained_cfg"]["fixed_input_size"] = fixed
    (source / "config.json").write_text(json.dumps(config, indent=2))
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    require_only_planned(source, report)
    built = timm.create_model(f"local-dir:{report.output}", pretrained=True)
    assert built.patch_embed.img_size == (96, 128)
    assert built.pretrained_cfg["input_size"] == [3, 96, 128]
    # timm resamples a table that does not fit without a word: equal values prove that it did not.
    written = open_container(report.output)
    for name, tensor in built.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), written.read(name))
    with torch.no_grad():
        built.eval()(torch.zeros(1, 3, 96, 128))


def open_clip_folder(folder: Path) -> Path:
    import open_clip
    from safetensors.torch import save_file

    config = {
        "embed_dim": 32,
        "vision_cfg": {
            "image_size": 64,
            "patch_size": 16,
            "layers": 1,
            "width": 64,
            "head_width": 32,
        },
        "text_cfg": {"context_length": 12, "vocab_size": 100, "width": 64, "heads": 2, "layers": 1},
    }
    model = open_clip.CLIP(**config)
    folder.mkdir()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors", {"format": "pt"})
    document = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(document, indent=4))
    return folder


def test_an_open_clip_folder_builds_at_the_new_size(tmp_path: Path) -> None:
    import open_clip

    source = open_clip_folder(tmp_path / "model")
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    require_only_planned(source, report)
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{report.output}")
    assert tuple(model.visual.image_size) == (96, 128)
    written = open_container(report.output)
    for name, tensor in model.state_dict().items():
        if name in written.tensors:
            np.testing.assert_array_equal(tensor.numpy(), written.read(name))
    from PIL import Image

    pixels = preprocess(Image.fromarray(IMAGE))[None]
    assert pixels.shape[2:] == (96, 128)
    with torch.no_grad():
        assert model.encode_image(pixels).shape == (1, 32)


def test_only_the_values_of_a_config_change(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    text = '{ "b":1.50,\r\n\t"image_size" : 64 , "\\u00e4": [1,2],"z":1e-05}\r\n'
    (source / "config.json").write_bytes(text.encode())
    report = resize_checkpoint(source, to="96")
    assert report.output is not None
    assert (report.output / "config.json").read_bytes() == text.replace(": 64", ": 96").encode()
    (edit,) = report_document(report)["config_edits"]
    assert edit == {"file": "config.json", "key": "image_size", "from": 64, "to": 96}
    assert report.config_advice == ()


def test_no_config_leaves_the_configs_and_says_what_is_left(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    report = resize_checkpoint(source, to=96, edit_configs=False)
    assert report.output is not None
    assert files(report.output)["config.json"] == files(source)["config.json"]
    assert report.plan.config_edits == ()
    (advice,) = report_document(report)["config_advice"]
    assert (advice["file"], advice["key"], advice["to"]) == ("config.json", "image_size", 96)


def test_a_stale_config_is_set_right_although_the_weights_fit(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    (source / "config.json").write_text('{"image_size": 32}')
    report = resize_checkpoint(source, to=64)
    assert report.status is Status.RESIZED
    assert report.output is not None
    assert report.plan.changes == ()
    assert files(report.output)["config.json"] == b'{"image_size": 64}'
    assert files(report.output)["model.safetensors"] == files(source)["model.safetensors"]


def test_a_config_that_is_no_json_is_refused_unless_configs_are_left(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    (source / "config.json").write_text("{")
    with pytest.raises(ContainerError, match=r"config\.json: is not a JSON object") as caught:
        resize_checkpoint(source, to=96)
    assert "edit_configs=False" in (caught.value.hint or "")
    assert resize_checkpoint(source, to=96, edit_configs=False).status is Status.RESIZED


def test_every_weight_file_is_converted_alike(tmp_path: Path) -> None:
    half = {
        name: array.astype(np.float16) if array.dtype == np.float32 else array
        for name, array in vit().items()
    }
    source = small_folder(tmp_path / "model", model=vit(), model__fp16=half)
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    require_only_planned(source, report)
    names = [step.table.name for step in report.plan.changes]
    assert names == ["pos_embed", "model.fp16.safetensors/pos_embed"]
    single = open_container(report.output / "model.safetensors").read("pos_embed")
    other = open_container(report.output / "model.fp16.safetensors").read("pos_embed")
    assert single.shape == other.shape == (1, 49, 8)
    assert (single.dtype.name, other.dtype.name) == ("float32", "float16")
    np.testing.assert_allclose(single, other, atol=2e-3)
    assert report.fine_tune.parameters == ("pos_embed",)


def test_weights_beside_weights_in_torch_s_format_are_converted_alike(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    state = {name: torch.from_numpy(array) for name, array in vit().items()}
    torch.save(state, source / "pytorch_model.bin")
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    written = torch.load(report.output / "pytorch_model.bin", weights_only=True)
    first = open_container(report.output / "model.safetensors")
    for name, tensor in written.items():
        np.testing.assert_array_equal(tensor.numpy(), first.read(name))


def test_shards_in_torch_s_format_load_again(tmp_path: Path) -> None:
    state = {name: torch.from_numpy(array) for name, array in vit().items()}
    source = tmp_path / "model"
    source.mkdir()
    names = list(state)
    homes = {n: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, n in enumerate(names)}
    for home in set(homes.values()):
        torch.save({n: state[n] for n in names if homes[n] == home}, source / home)
    index = {"metadata": {"total_size": 10}, "weight_map": homes}
    (source / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    report = resize_checkpoint(source, to="96x128")
    assert report.output is not None
    for name, home in homes.items():
        tensor = torch.load(report.output / home, weights_only=True)[name]
        if name != "pos_embed":
            assert torch.equal(tensor, state[name])
        else:
            assert tensor.shape == (1, 49, 8)


def test_weight_files_of_two_models_are_refused(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model", a=vit(4, 4), b=vit(5, 5))
    with pytest.raises(GeometryError, match="not copies of one model"):
        resize_checkpoint(source, to=96)


STALE = ["tf_model.h5", "flax_model.msgpack", "onnx/model.onnx", "optimizer.pt"]


@pytest.mark.parametrize("name", STALE)
def test_weights_that_would_be_out_of_date_are_left_out(name: str, tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).write_bytes(b"old")
    report = resize_checkpoint(source, to=96)
    assert report.output is not None
    assert not (report.output / name).exists()
    (entry,) = report_document(report)["left_out"]
    assert entry["name"] == name
    same = resize_checkpoint(source, to=64, output=tmp_path / "same")
    assert (tmp_path / "same" / name).read_bytes() == b"old"
    assert same.left_out == ()


def test_version_control_is_not_carried_over(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    (source / ".git").mkdir()
    (source / ".git" / "HEAD").write_text("ref")
    report = resize_checkpoint(source, to=96)
    assert report.output is not None
    assert not (report.output / ".git").exists()
    assert [entry.name for entry in report.left_out] == [".git/"]


def test_training_files_are_no_weights(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    for name in ("training_args.bin", "scheduler.pt", "rng_state.pth", "spm.bin"):
        (source / name).write_bytes(b"\x80\x02 not for us")
    report = resize_checkpoint(source, to=96)
    assert report.output is not None
    assert files(report.output)["training_args.bin"] == b"\x80\x02 not for us"
    assert files(report.output)["spm.bin"] == b"\x80\x02 not for us"


def lfs(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")


def below(folder: Path) -> None:
    (folder / "0_CLIPModel").mkdir()
    write_safetensors(folder / "0_CLIPModel" / "model.safetensors", vit())


def damaged(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x08")


def pipe(folder: Path) -> None:
    import os

    os.mkfifo(folder / "pipe")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (lambda _: None, "the folder is empty"),
    (
        lambda folder: (folder / "README.md").write_text("x"),
        "no weights among its 1 files",
    ),
    (lfs, "git-LFS pointer"),
    (below, "no weights at the top of the folder, but in 0_CLIPModel"),
    (damaged, r"model\.safetensors"),
    (pipe, "neither a file nor a folder"),
    (
        lambda folder: (folder / "tf_model.h5").write_bytes(b"x"),
        r"tf_model\.h5 cannot be converted",
    ),
    (lambda folder: (folder / "model.safetensors").symlink_to("nowhere"), "a link to nothing"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_a_folder_without_usable_weights_is_refused(
    make: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)
    with pytest.raises(ContainerError, match=words) as caught:
        resize_checkpoint(folder, to=96)
    assert "model" in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["model.safetensors", "README.md", "data"])
def test_a_link_out_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    outside = tmp_path / "outside"
    if name == "data":
        outside.mkdir()
    else:
        shutil.copy(source / "model.safetensors", outside)
    (source / name).unlink(missing_ok=True)
    (source / name).symlink_to(outside)
    with pytest.raises(ContainerError, match="is a link to"):
        resize_checkpoint(source, to=96)


def test_the_hub_s_cache_is_made_of_links(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    blobs = small_folder(tmp_path / "plain").rename(repository.with_suffix(".tmp"))
    repository.mkdir()
    blobs.rename(repository / "blobs")
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "blobs" / "large.dat").write_bytes(bytes(LINK_FROM))
    for name in ("model.safetensors", "config.json", "large.dat"):
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    report = resize_checkpoint(snapshot, to=96, output=tmp_path / "out")
    assert report.output is not None
    assert not any(path.is_symlink() for path in report.output.iterdir())
    assert not (report.output / "large.dat").samefile(repository / "blobs" / "large.dat")
    assert json.loads((report.output / "config.json").read_text())["image_size"] == 96


@pytest.mark.parametrize("place", ["model", "model/below", ".", "out", "new.safetensors"])
def test_a_target_that_would_harm_the_source_is_refused(place: str, tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    before = files(source)
    (tmp_path / "out").write_bytes(b"a file")
    with pytest.raises(OutputError):
        resize_checkpoint(source, to=96, output=tmp_path / place, force=True)
    assert files(source) == before


def test_an_existing_folder_is_replaced_only_when_forced(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    target = small_folder(tmp_path / "model-96")
    (target / "stale.txt").write_text("from before")
    with pytest.raises(OutputError, match="already exists"):
        resize_checkpoint(source, to=96)
    assert (target / "stale.txt").exists()
    resize_checkpoint(source, to=96, force=True)
    assert not (target / "stale.txt").exists()
    assert json.loads((target / "config.json").read_text())["image_size"] == 96
    assert {path.name for path in tmp_path.iterdir()} == {"model", "model-96"}


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "full"), MemoryError()])
@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_in_the_middle_leaves_nothing_behind(
    failure: BaseException, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = small_folder(tmp_path / "model")
    (source / "z.txt").write_text("the last file")
    if exists:
        small_folder(tmp_path / "model-96")
    before = files(tmp_path)

    def fails(source: SourceFile, target: Path, *, link: bool) -> bool:
        assert (target.parent / "model.safetensors").exists()  # half of the work is done
        raise failure

    monkeypatch.setattr(model_folder, "link_or_copy", fails)
    with pytest.raises((type(failure), OutputError)):
        resize_checkpoint(source, to=96, force=exists)
    assert files(tmp_path) == before
    assert not list(tmp_path.glob(f"*{PART_SUFFIX}"))


def test_a_lone_file_in_a_folder_is_converted_alone(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    report = resize_checkpoint(source / "model.safetensors", to=96)
    assert report.output == source / "model-96.safetensors"
    assert json.loads((source / "config.json").read_text().replace("\t", " "))["image_size"] == 64
    (advice,) = report.config_advice
    assert (advice.library, advice.file, advice.before, advice.after) == (
        "transformers",
        "config.json",
        64,
        96,
    )


@pytest.mark.parametrize("tail", ["", "/", "/../model"])
def test_the_default_output_is_named_after_the_folder(tail: str, tmp_path: Path) -> None:
    small_folder(tmp_path / "model")
    report = resize_checkpoint(f"{tmp_path}/model{tail}", to=96)
    assert report.output is not None
    assert report.output.resolve() == (tmp_path / "model-96").resolve()


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small_folder(tmp_path / "model.v1"))
    report = resize_checkpoint(".", to=96)
    assert report.output == tmp_path.resolve() / "model.v1-96"


def test_a_dry_run_lists_the_edits_and_writes_nothing(tmp_path: Path) -> None:
    source = small_folder(tmp_path / "model")
    report = resize_checkpoint(source, to=96, dry_run=True)
    assert report.status is Status.PLANNED
    assert [str(edit) for edit in report.plan.config_edits] == ["config.json: image_size 64 → 96"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_inspect_says_what_the_folder_is(tmp_path: Path) -> None:
    source = save_hf(vit_model(), None, tmp_path / "model", max_shard_size="50KB")
    inspection = inspect_checkpoint(source)
    assert "model folder" in inspection.format
    assert "safetensors in" in inspection.format
    assert [table.name for table in inspection.located.tables] == [
        "vit.embeddings.position_embeddings"
    ]


def test_a_rectangle_that_clip_cannot_load_is_refused(tmp_path: Path) -> None:
    case = HF_MODELS["clip"]
    source = save_hf(case.model(), None, tmp_path / "model")
    with pytest.raises(ResizePosError, match="clip_vision_model models for square images only"):
        resize_checkpoint(source, to="96x128")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_defaults_that_a_config_leaves_out_are_written(tmp_path: Path) -> None:
    from transformers import SiglipModel

    case = HF_MODELS["siglip"]
    source = save_hf(case.model(), None, tmp_path / "model")
    config = json.loads((source / "config.json").read_text())
    del config["vision_config"]["image_size"]
    (source / "config.json").write_text(json.dumps(config, indent=2))
    report = resize_checkpoint(source, to=96, from_=64)
    assert report.output is not None
    assert loaded(SiglipModel, report.output).config.vision_config.image_size == 96


def test_optimizer_state_in_a_folder_is_refused(tmp_path: Path) -> None:
    parameters = {
        n: torch.nn.Parameter(torch.from_numpy(a))
        for n, a in vit().items()
        if a.dtype == np.float32
    }
    optimizer = torch.optim.Adam(parameters.values())
    sum(p.sum() for p in parameters.values()).backward()  # type: ignore[union-attr]
    optimizer.step()
    source = tmp_path / "model"
    source.mkdir()
    model = {name: parameter.detach() for name, parameter in parameters.items()}
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, source / "checkpoint.pth")
    with pytest.raises(ContainerError, match="holds the state of an optimizer"):
        resize_checkpoint(source, to=96)


def test_the_terminal_lists_edits_links_and_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = small_folder(tmp_path / "model")
    (source / "tf_model.h5").write_bytes(b"old")
    (source / "blob.dat").write_bytes(bytes(LINK_FROM))
    assert _run([str(source), "--to", "96", "--link"], debug=True) == 0
    shown = capsys.readouterr().out
    assert "config.json: image_size 64 → 96" in shown
    assert "tf_model.h5 was left out" in shown
    assert "1 unchanged files are hard links" in shown
    words = ["--no-config", "-o", str(tmp_path / "other")]
    assert _run([str(source), "--to", "96", *words], debug=True) == 0
    shown = capsys.readouterr().out
    assert "still to change: transformers config.json: image_size 64 → 96" in shown
    assert "hard links" not in shown


# tensors of a lone file, what its user still has to change
ADVICE: list[tuple[dict[str, str], list[tuple[str, str]]]] = [
    ({}, [("timm", "img_size")]),
    (
        {
            "pos_embed": "embeddings.position_embeddings",
            "cls_token": "embeddings.cls_token",
            "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
        },
        [("transformers", "image_size"), ("transformers", "size")],
    ),
    (
        {
            "pos_embed": "encoder.pos_embedding",
            "cls_token": "class_token",
            "patch_embed.proj.weight": "conv_proj.weight",
        },
        [("torchvision", "image_size")],
    ),
]


@pytest.mark.parametrize(("names", "expected"), ADVICE)
def test_a_file_without_configs_says_what_is_left_to_change(
    names: dict[str, str], expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    tensors = {names.get(name, name): array for name, array in vit().items()}
    path = write_safetensors(tmp_path / "lone.safetensors", tensors)
    report = resize_checkpoint(path, to="96x128")
    assert [(a.library, a.key) for a in report.config_advice] == expected
    assert {(a.before, tuple(a.after)) for a in report.config_advice} == {(64, (96, 128))}
    assert resize_checkpoint(path, to=64).config_advice == ()
