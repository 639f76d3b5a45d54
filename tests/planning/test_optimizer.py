"""Training checkpoints: optimizer state follows its table, or is dropped; and training goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from resize_pos.api import resize_checkpoint
from resize_pos.containers.detect import open_container
from resize_pos.core.errors import TableError, UsageError
from resize_pos.core.operations import ResizeState
from resize_pos.families.tables import Action
from resize_pos.report.json import report_document
from tests.support.torch_files import PROTOCOLS, TinyViT, raw_records, save

FROM, TO = "12x20", "24x16"  # pixels: 3×5 and 6×4 patches of 4
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def amsgrad(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def rmsprop(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)


def by_weight_decay(model: nn.Module) -> torch.optim.Optimizer:
    flat = [p for p in model.parameters() if p.ndim < 2]
    rest = [p for p in model.parameters() if p.ndim >= 2]
    groups: list[dict[str, Any]] = [{"params": flat, "weight_decay": 0.0}, {"params": rest}]
    return torch.optim.AdamW(groups, lr=1e-3)


def named(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.named_parameters(), lr=1e-3)


OPTIMIZERS: dict[str, Optimizer] = {
    f.__name__: f for f in (adamw, amsgrad, momentum, rmsprop, by_weight_decay, named)
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, size: tuple[int, int]) -> float:
    loss = model(torch.randn(2, 3, *size)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def trained(make: Optimizer, model: nn.Module | None = None) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    model = model or TinyViT(3, 5)
    optimizer = make(model)
    for _ in range(3):
        train(model, optimizer, (12, 20))
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    return model, content


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("choice", [None, "drop"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_at_the_new_size(
    name: str, choice: str | None, protocol: int, tmp_path: Path
) -> None:
    _, content = trained(OPTIMIZERS[name])
    source = save(tmp_path / "a.pth", content, protocol)
    options: Any = {"optimizer": choice} if choice else {}
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth", **options)
    loaded = torch.load(tmp_path / "b.pth", weights_only=protocol == 2)
    model = TinyViT(6, 4)
    model.load_state_dict(loaded["model"])
    optimizer = OPTIMIZERS[name](model)
    optimizer.load_state_dict(loaded["optimizer"])
    assert model.pos_embed.shape == (1, 25, 8)
    state = optimizer.state.get(model.pos_embed, {})
    assert bool(state) == (choice != "drop")
    old = content["optimizer"]["state"]
    others = {i: entry for i, entry in old.items() if i in loaded["optimizer"]["state"]}
    assert len(others) == len(old) - (choice == "drop")
    for index, entry in others.items():
        for field, value in entry.items():
            new = loaded["optimizer"]["state"][index][field]
            if isinstance(value, torch.Tensor) and value.shape == (1, 16, 8):
                assert new.shape == (1, 25, 8) and new.dtype == value.dtype
                assert not bool((value >= 0).all()) or bool((new >= 0).all())
                assert torch.equal(new[:, :1], value[:, :1])  # the prefix row
            elif isinstance(value, torch.Tensor):
                assert torch.equal(new, value)
            else:
                assert new == value
    assert loaded["optimizer"]["param_groups"] == content["optimizer"]["param_groups"]
    assert train(model, optimizer, (24, 16)) >= 0
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_second_moments_stay_non_negative_where_bicubic_overshoots(tmp_path: Path) -> None:
    _, content = trained(adamw)
    moment = content["optimizer"]["state"][1]["exp_avg_sq"]
    moment.zero_()[0, 8] = 1.0  # one cell among zeros
    source = save(tmp_path / "a.pth", content)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    state = torch.load(tmp_path / "b.pth")["optimizer"]["state"][1]
    assert float(state["exp_avg_sq"].min()) == 0.0 and float(state["exp_avg_sq"].max()) > 0.3
    assert float(state["exp_avg"].min()) < 0


def test_the_report_shows_state_and_how_it_was_matched(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", trained(adamw)[1])
    report = resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    tables = {t["name"]: t for t in report_document(report)["tables"]}
    moments = [n for n in tables if n.startswith("optimizer.state.")]
    assert moments == ["optimizer.state.1.exp_avg", "optimizer.state.1.exp_avg_sq"]
    assert {tables[n]["kind"] for n in moments} == {"optimizer"}
    assert "state 1 of the optimizer" in tables[moments[0]]["evidence"][0]
    assert report.fine_tune.parameters == ("model.pos_embed",)
    (table, *states) = report.plan.changes
    assert table.operation is not None and not isinstance(table.operation, ResizeState)
    for state in states:  # the plan says that the values are clamped
        assert state.table == table.table and state.state is not None
        assert state.operation == ResizeState(table.operation)
        assert str(state.operation) == f"{table.operation}, no new negative values"
    dropped = resize_checkpoint(
        source, to=TO, from_=FROM, output=tmp_path / "c.pth", optimizer="drop"
    )
    assert [s.action for s in dropped.plan.steps].count(Action.DROP) == 2
    assert dropped.plan.drops == ("optimizer.state.1",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dropping_takes_the_storages_out_and_leaves_the_others_identical(
    protocol: int, tmp_path: Path
) -> None:
    content = trained(adamw)[1]
    source = save(tmp_path / "a.pth", content, protocol)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth", optimizer="drop")
    before, after = raw_records(source), raw_records(tmp_path / "b.pth")
    gone = set(before) - set(after)
    assert len(gone) == 3 and all(n.startswith("a/data/") for n in gone)  # step and two moments
    changed = {n for n in before if n in after and before[n] != after[n]}
    assert {n.removeprefix("a/") for n in changed} - {".format_version"} <= {"data.pkl", "data/1"}
    torch.load(tmp_path / "b.pth", map_location="meta", weights_only=False)


@pytest.mark.parametrize("first", [True, False])
def test_strings_that_the_dropped_entry_introduced_survive(first: bool, tmp_path: Path) -> None:
    """The first entry of the state is where the pickle writes 'exp_avg'; all others read it."""

    class Alone(TinyViT):
        def __init__(self) -> None:
            super().__init__(3, 5)
            order = ["pos_embed", "cls_token"] if first else ["cls_token", "pos_embed"]
            own = {name: self._parameters.pop(name) for name in order}
            for name, value in own.items():
                self.register_parameter(name, value)

    _, content = trained(adamw, Alone())
    source = save(tmp_path / "a.pth", {"optimizer": content["optimizer"], **content})
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth", optimizer="drop")
    state = torch.load(tmp_path / "b.pth", weights_only=True)["optimizer"]["state"]
    assert sorted(state) == [i for i in range(8) if i != (0 if first else 1)]
    assert all(set(entry) == {"step", "exp_avg", "exp_avg_sq"} for entry in state.values())


class Twins(TinyViT):
    """A second parameter of the table's shape that is no table."""

    def __init__(self, height: int = 3, width: int = 5, *, before: bool = False) -> None:
        super().__init__(height, width)
        self.memory = nn.Parameter(torch.randn(1, 16, 8))
        if before:
            own = self._parameters.pop("memory")
            self._parameters = {"memory": own, **self._parameters}

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images) + self.memory.sum() * 1e-3


@pytest.mark.parametrize("before", [True, False])
def test_order_settles_which_of_two_alike_entries_it_is(before: bool, tmp_path: Path) -> None:
    _, content = trained(adamw, Twins(before=before))
    source = save(tmp_path / "a.pth", content)
    report = resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    loaded = torch.load(tmp_path / "b.pth")
    model = Twins(6, 4, before=before)
    model.load_state_dict(loaded["model"])
    optimizer = adamw(model)
    optimizer.load_state_dict(loaded["optimizer"])
    train(model, optimizer, (24, 16))
    evidence = report.plan.steps[-1].evidence[0]
    assert f"number {1 + before} of 2 parameters of shape [1, 16, 8], in order" in evidence


def apart(model: nn.Module) -> torch.optim.Optimizer:
    """Put every parameter into a group of its own, in reverse, as layer-wise decay may."""
    groups = [{"params": [p]} for p in reversed(list(model.parameters()))]
    return torch.optim.AdamW(groups, lr=1e-3)


def test_an_ambiguous_match_is_an_error_that_explains_both_choices(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", trained(apart, Twins())[1])
    for choice in ({}, {"optimizer": "resize"}):
        with pytest.raises(TableError, match="2 parameters and 2 entries") as refused:
            resize_checkpoint(source, to=TO, from_=FROM, **choice)  # type: ignore[arg-type]
        assert 'optimizer="drop"' in str(refused.value.hint)
        assert "named parameters" in str(refused.value.hint)
    report = resize_checkpoint(
        source, to=TO, from_=FROM, output=tmp_path / "b.pth", optimizer="drop"
    )
    assert len(report.plan.drops) == 2
    loaded = torch.load(tmp_path / "b.pth")
    model = Twins(6, 4)
    model.load_state_dict(loaded["model"])
    optimizer = apart(model)
    optimizer.load_state_dict(loaded["optimizer"])
    train(model, optimizer, (24, 16))


def test_copies_of_the_weights_do_not_confuse_the_match(tmp_path: Path) -> None:
    model, content = trained(adamw)
    ema = {f"module.{k}": v.clone() * 0.5 for k, v in model.state_dict().items()}
    content |= {"model_ema": ema, "optimizer_states": [content.pop("optimizer")]}
    source = save(tmp_path / "a.pth", content)
    report = resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    names = [step.name for step in report.plan.changes]
    assert names == [
        "model.pos_embed",
        "model_ema.module.pos_embed",
        "optimizer_states.0.state.1.exp_avg",
        "optimizer_states.0.state.1.exp_avg_sq",
    ]


def test_state_keyed_by_name_is_matched_by_name(tmp_path: Path) -> None:
    model, content = trained(adamw)
    names = [name for name, _ in model.named_parameters()]
    old = content["optimizer"]
    content["optimizer"] = {
        "state": {names[i]: entry for i, entry in old["state"].items()},
        "param_groups": [{**old["param_groups"][0], "params": names}],
    }
    content["model"] = {f"module.{k}": v for k, v in content["model"].items()}
    source = save(tmp_path / "a.pth", content)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    state = torch.load(tmp_path / "b.pth")["optimizer"]["state"]
    assert state["pos_embed"]["exp_avg"].shape == (1, 25, 8)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "c.pth", optimizer="drop")
    assert "pos_embed" not in torch.load(tmp_path / "c.pth")["optimizer"]["state"]


def test_factored_and_quantised_state_is_dropped_or_refused(tmp_path: Path) -> None:
    content = trained(adamw)[1]
    entry = content["optimizer"]["state"][1]
    del entry["exp_avg"], entry["exp_avg_sq"]
    entry |= {"exp_avg_sq_row": torch.ones(1, 16), "exp_avg_sq_col": torch.ones(1, 8)}
    source = save(tmp_path / "a.pth", content)
    with pytest.raises(TableError, match=r"cannot be interpolated: .*exp_avg_sq_row"):
        resize_checkpoint(source, to=TO, from_=FROM)
    resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth", optimizer="drop")
    assert 1 not in torch.load(tmp_path / "b.pth")["optimizer"]["state"]
    content["optimizer"]["state"][1] = {"state1": torch.ones(1, 16, 8, dtype=torch.uint8)}
    source = save(tmp_path / "c.pth", content)
    with pytest.raises(TableError, match="stored as U8"):
        resize_checkpoint(source, to=TO, from_=FROM)


def test_a_frozen_table_has_no_state(tmp_path: Path) -> None:
    model = TinyViT(3, 5)
    model.pos_embed.requires_grad_(False)
    make: Optimizer = lambda m: torch.optim.AdamW(  # noqa: E731
        [p for p in m.parameters() if p.requires_grad]
    )
    source = save(tmp_path / "a.pth", trained(make, model)[1])
    report = resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    assert [step.name for step in report.plan.changes] == ["model.pos_embed"]


def test_a_single_entry_can_be_dropped(tmp_path: Path) -> None:
    content = trained(adamw)[1]
    content["optimizer"]["state"] = {1: content["optimizer"]["state"][1]}
    for protocol in PROTOCOLS:
        source = save(tmp_path / f"{protocol}.pth", content, protocol)
        target = tmp_path / f"{protocol}-out.pth"
        resize_checkpoint(source, to=TO, from_=FROM, output=target, optimizer="drop")
        assert torch.load(target, weights_only=protocol == 2)["optimizer"]["state"] == {}


def test_a_dry_run_plans_the_same(tmp_path: Path) -> None:
    source = save(tmp_path / "a.pth", trained(adamw)[1])
    planned = resize_checkpoint(source, to=TO, from_=FROM, dry_run=True)
    done = resize_checkpoint(source, to=TO, from_=FROM, output=tmp_path / "b.pth")
    assert planned.plan == done.plan
    assert open_container(source).tensors["optimizer.state.1.step"].shape == ()


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(UsageError, match="optimizer='forget'"):
        resize_checkpoint("x.pth", to=TO, optimizer="forget")
