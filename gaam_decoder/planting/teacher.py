"""Who says how probable every class is: a gate with known parameters, a linear head, a softmax.

N rows, L layers, D hidden size, C classes, F = L * D features behind the gate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from gaam_cache.errors import ConfigError
from gaam_decoder.attention._base import Attention
from gaam_decoder.planting.gates import GATES
from gaam_decoder.planting.states import States
from gaam_decoder.specs import Spec, build

HEAD, LABELS = 3, 4
"""Random streams of a seed; ``states`` has others."""
ROUNDING = 1e-12
"""Spread of a feature beside its mean that is none: float64 rounds at 1e-16, states are stored in
float32 at the finest, 6e-8 apart."""
Floats = NDArray[np.float64]


def planted_mechanism(gate: str, num_layers: int, hidden_size: int) -> Attention:
    """The mechanism of a gate with one head and the planted parameters, in float64.

    Args:
        gate: a key of ``GATES``.
        num_layers: L.
        hidden_size: D.
    """
    about = GATES[gate]
    options = (("heads", 1),) if about.parameters else ()
    module: Attention = build(
        Spec(about.mechanism, options), "mechanism", num_layers, hidden_size
    ).double()
    with torch.no_grad():
        for name, value in about.parameters.items():
            module.get_parameter(name).fill_(value)
    return module


@dataclass(frozen=True, kw_only=True, slots=True)
class Teacher:
    """``p(c | x) = softmax(strength * (W vec(attention(x)) - mean) / spread)_c``.

    W is drawn once: normal numbers divided by the standard deviation of their feature over the
    training rows, so that every feature counts alike, whatever its scale. The mean of every class
    and the spread of all logits are those of the training rows too, so that classes are about
    equally frequent and ``strength`` means the same for all states. All of that is a linear head.

    Where no gate is planted all layers share one W: the mean over the layers decides.
    """

    attention: Attention
    weight_CF: Floats  # noqa: N815 a shape suffix
    bias_C: Floats  # noqa: N815

    def logits(self, x_NLD: Floats) -> Floats:
        """(N, L, D) -> (N, C)."""
        return _behind(self.attention, x_NLD) @ self.weight_CF.T + self.bias_C

    def probabilities(self, states: States) -> Floats:
        """Of every row, (N, C)."""
        found: Floats = softmax(np.concatenate([self.logits(x) for _, x in states.blocks()]), 1)
        return found


def _behind(attention: Attention, x_NLD: Floats) -> Floats:
    """What the head reads, (N, F)."""
    with torch.inference_mode():
        y_NLD: Floats = attention(torch.from_numpy(x_NLD)).numpy()
    return y_NLD.reshape(len(y_NLD), -1)


def make_teacher(gate: str, train: States, *, classes: int, strength: float, seed: int) -> Teacher:
    """Draw a teacher.

    Args:
        gate: a key of ``GATES``.
        train: the training rows.
        classes: C.
        strength: standard deviation of the logits over rows and classes.
        seed: decides the head.

    Raises:
        ConfigError: the training rows are all the same behind the gate.
    """
    _, num_layers, hidden_size = train.shape
    attention = planted_mechanism(gate, num_layers, hidden_size)
    shared = not GATES[gate].parameters
    mean_F, spread_F = _moments(attention, train, shared)
    differs_F = spread_F > ROUNDING * np.abs(mean_F)
    if not differs_F.any():
        raise ConfigError(
            "no teacher can tell the rows apart, and labels would be drawn at chance",
            expected="states that differ from row to row",
            found=f"{len(train):,} rows to learn from that are all the same behind the gate "
            f"'{gate}', in each of {len(mean_F):,} features",
            hint="take a cache of other states, or leave out --from",
        )
    generator = np.random.default_rng([seed, HEAD])
    weight_CF = generator.standard_normal((classes, len(mean_F)))
    weight_CF = np.divide(weight_CF, spread_F, out=np.zeros_like(weight_CF), where=differs_F)
    if shared:
        weight_CF, mean_F = np.tile(weight_CF / num_layers, num_layers), np.tile(mean_F, num_layers)
    centred = Teacher(attention=attention, weight_CF=weight_CF, bias_C=-(weight_CF @ mean_F))
    square = sum(float(np.square(centred.logits(x)).sum()) for _, x in train.blocks())
    factor = strength / max((square / (len(train) * classes)) ** 0.5, 1e-300)
    return Teacher(
        attention=attention, weight_CF=factor * weight_CF, bias_C=factor * centred.bias_C
    )


def _moments(attention: Attention, train: States, shared: bool) -> tuple[Floats, Floats]:
    """Mean and standard deviation of what is weighted, (F,), or (D,) of means over the layers."""

    def read(x_NLD: Floats) -> Floats:
        return x_NLD.mean(1) if shared else _behind(attention, x_NLD)

    first_F = read(next(train.blocks())[1])[0]  # what is subtracted first keeps digits
    total_F, square_F = np.zeros_like(first_F), np.zeros_like(first_F)
    for _, x_NLD in train.blocks():
        moved_NF = read(x_NLD) - first_F
        total_F += moved_NF.sum(0)
        square_F += np.square(moved_NF).sum(0)
    mean_F = total_F / len(train)
    return first_F + mean_F, np.sqrt(np.maximum(square_F / len(train) - mean_F**2, 0))


def draw_labels(p_NC: Floats, seed: int, split: int) -> NDArray[np.int64]:
    """One class of every row, as probable as it says.

    Args:
        p_NC: probabilities.
        seed: decides the draws.
        split: number of the split, each of which has draws of its own.
    """
    u_N1 = np.random.default_rng([seed, LABELS, split]).random((len(p_NC), 1))
    label_N: NDArray[np.int64] = (u_N1 >= np.cumsum(p_NC, 1)).sum(1)
    return np.minimum(label_N, p_NC.shape[1] - 1)
