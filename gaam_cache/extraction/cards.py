"""GPUs that an estimate may assume, and what they compute at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """A GPU as its data sheet has it."""

    label: str
    peaks: dict[str, float]
    """Arithmetic -> floating-point operations per second, dense: without sparsity, which data
    sheets often count and which doubles them. float16 and bfloat16 are matrix products with sums
    in float32; float32 is that without TF32, which torch does not use unless it is told to."""


def _card(label: str, half: float, single: float, *, bfloat16: bool = True) -> Card:
    """From TFLOP/s of half-precision matrix products and of float32."""
    peaks = {"float16": half * 1e12, "float32": single * 1e12}
    return Card(label=label, peaks=peaks | ({"bfloat16": half * 1e12} if bfloat16 else {}))


CARDS = {
    "v100": _card("V100 SXM2", 125, 15.7, bfloat16=False),
    "t4": _card("T4", 65, 8.1, bfloat16=False),
    "a10": _card("A10", 125, 31.2),
    "a30": _card("A30", 165, 10.3),
    "a40": _card("A40", 149.7, 37.4),
    "a100": _card("A100", 312, 19.5),
    "l4": _card("L4", 121, 30.3),
    "l40s": _card("L40S", 362, 91.6),
    "h100": _card("H100 SXM", 989, 67),
    "h100-pcie": _card("H100 PCIe", 756, 51),
    "h200": _card("H200 SXM", 989, 67),
    "b200": _card("B200 SXM", 2250, 75),
    "rtx3090": _card("GeForce RTX 3090", 71, 35.6),
    "rtx4090": _card("GeForce RTX 4090", 165, 82.6),
}
"""Source: NVIDIA's data sheets of these cards, of the GeForce ones its white papers on the
architectures GA102 and Ada; figures that are given with sparsity are halved."""
DEFAULT_CARD = "a100"
"""Where a GPU is asked for, none is here and none is named."""
DEFAULT_SHARE = 0.4
"""Of the peak, reached by the encoder: a guess for large encoders and full batches, not measured
here. Small encoders (all-MiniLM) are bound by launches and reach far less."""
