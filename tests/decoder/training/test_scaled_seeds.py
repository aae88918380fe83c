"""Seeds whose losses are scaled: beside others, interrupted, failed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.training.arithmetic import scaling
from tests.decoder.training.test_group import data
from tests.decoder.training.test_scaling import _grows, group

__all__ = ["_grows"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("attention", ["gaam", "mha-bn"])
def test_a_seed_whose_gradients_overflow_disturbs_no_other(attention: str, dtype: str) -> None:
    """And stays as it was: parameters, moments and the number of its steps."""
    undisturbed, poisoned = (
        group([0, 1, 2], attention=attention, dtype=dtype, clip_grad_norm=1.0) for _ in range(2)
    )
    poisoned.state.parameters["head.fc.weight"][1] = torch.inf
    before = {name: value.clone() for name, value in poisoned.state.tensors().items()}
    for one in (undisturbed, poisoned):
        for epoch in range(1, 5):
            one._pass(epoch)
    after = poisoned.state.tensors()
    for name, value in undisturbed.state.tensors().items():
        assert torch.equal(value[[0, 2]], after[name][[0, 2]]), name
        part = name.partition(".")[0]
        if part in ("parameters", "exp_avg", "exp_avg_sq") or name == "scaling.steps_S":
            assert torch.equal(after[name][1], before[name][1]), name
    assert poisoned.state.scaling is not None
    assert poisoned.state.scaling.scale_S[1] == scaling.START / 2**4
    assert poisoned.state.scaling.steps_S[1] == 0


def test_rows_without_a_finite_loss_are_in_no_mean() -> None:
    """Of an epoch of four batches; a seed without any that has one has nothing to go on."""
    ours = group(list(range(8)), torch.nan, rows=data(torch.float32))
    ours.train_epoch()
    skipped = [member.log[0]["skipped"] for member in ours.members]
    assert 0 < skipped.count(4) < 8
    for member, count in zip(ours.members, skipped, strict=True):
        [entry] = member.log
        assert (entry["loss"] is None) == (member.failed is not None) == (count == 4)
        assert entry["loss"] is None or np.isfinite(entry["loss"])


def test_what_is_a_failure_still() -> None:
    """No finite loss in an epoch; a scale below 1; nothing learned to the end."""
    lost = group([0, 1], attention="none")
    lost.state.parameters["head.fc.weight"][1] = torch.nan
    lost.train_epoch()
    assert [m.failed for m in lost.members] == [None, "the loss became nan in epoch 1"]

    class Overflowing(CrossEntropy):  # a finite loss, whose gradient is not
        def __call__(self, logits_BC: torch.Tensor, label_B: torch.Tensor) -> torch.Tensor:
            return super().__call__(logits_BC + (logits_BC * 0).sqrt(), label_B)

    for epochs, steps, why in (
        (30, 17, "gradients overflow in epoch 17 even at a loss scale of 0.5"),
        (5, 5, "no step was taken in 5 epochs: gradients overflowed in all"),
    ):
        stuck = group([0, 1], epochs=epochs)
        stuck.step._loss_of = Overflowing()
        while not stuck.finished():
            stuck.train_epoch()
        assert [m.failed for m in stuck.members] == [why, why]
        assert [len(m.log) for m in stuck.members] == [steps, steps]
