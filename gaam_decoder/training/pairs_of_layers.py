"""Names a comparison in which the shape of no density can matter, before it is trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from gaam_cache.errors import GaamWarning
from gaam_decoder.attention import DensityGate
from gaam_decoder.decoder import DecoderSpec, build_attention, on_paper


def warn_of_pairs_of_layers(specs: Iterable[DecoderSpec]) -> None:
    """Say it where several densities stand side by side, each with two layers to a head.

    Reports say it of rows: see ``analysis.gates.layers_of_a_head``.

    Args:
        specs: decoders that can be built.

    Warns:
        GaamWarning: with the names of the densities.
    """
    found: dict[int, dict[str, str]] = {}
    for spec in specs:
        with on_paper():
            gate = build_attention(spec.attention, spec.num_layers, spec.hidden_size)
        if isinstance(gate, DensityGate) and spec.num_layers == 2 * gate.heads:
            names = found.setdefault(spec.num_layers, {})
            names.setdefault(spec.attention.name, str(spec.attention))
    for layers, names in found.items():
        if len(names) > 1:
            instead = f"; --attn {next(iter(names))}:heads=1 has all layers" if layers > 2 else ""
            warnings.warn(
                f"{', '.join(names.values())}: {layers} layers in heads of two, where standardised "
                "values are -1 or 1 but where both layers are nearly equal: the shape of a density "
                f"can hardly matter, so that this compares no distributions{instead}",
                GaamWarning,
                stacklevel=4,
            )
