"""Every architecture that transformers maps to a model of pictures, tiny and random.

    python -m tests.cache.encoders.vision.architectures [--list FILE.json] [NAME ...]

As ``tests.cache.encoders.architectures`` does for texts. Which positions are patches is told here
by gradients: those of the states before the first layer with respect to the pixels.
"""

from __future__ import annotations

import collections
import inspect
import re
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.vision import VisionEncoder
from gaam_cache.errors import GaamError
from tests.cache.encoders.architectures import (
    RECIPES,
    RIGHT,
    NotBuildable,
    draw,
    in_a_process,
    shrink,
)
from tests.cache.encoders.vision.pictures import noise
from tests.cache.encoders.walking import main, names_that_take

POOLS = ("mean", "max", "last")
SIDE = 32
"""Of a picture, where the configuration says nothing."""


def names() -> list[str]:
    """All that AutoModel maps and that takes pixels, alone or beside a text."""
    return names_that_take("pixel_values")


def build(name: str, folder: Path) -> None:
    """Save a tiny random model with an image processor that fits it.

    Raises:
        NotBuildable: why not.
    """
    problems = []
    cls = transformers.CONFIG_MAPPING[name]
    for make in [*(partial(shrink, cls, recipe) for recipe in RECIPES), cls]:
        try:
            model = draw(make())
            part = part_of(model)
            sizes = sizes_of(part)
            with torch.no_grad():
                part(pixel_values=torch.randn(1, 3, *sizes), output_hidden_states=True)
        except Exception as error:  # noqa: BLE001 what a foreign class does not like
            problems.append((make, error))
            continue
        break
    else:
        for make, _ in problems:
            try:
                model = draw(make())
                sizes = (SIDE, SIDE)
                break
            except Exception:  # noqa: BLE001, S112
                continue
        else:
            _, error = problems[0]
            raise NotBuildable(f"{type(error).__name__}: {str(error).strip():.160}")
    model.save_pretrained(folder)
    height, width = sizes
    processor = transformers.ViTImageProcessorPil(size={"height": height, "width": width})
    processor.save_pretrained(folder)


def sizes_of(part: Any) -> tuple[int, int]:
    size = getattr(part.config, "image_size", None) or SIDE
    return tuple(size) if isinstance(size, list | tuple) else (size, size)


def part_of(model: Any) -> Any:
    """By the names that vision towers go by."""
    if "input_ids" not in inspect.signature(model.forward).parameters:
        return model
    towers = {"vision_model", "vision_tower", "visual", "image_encoder", "image_model"}
    named = (module for name, module in model.named_modules() if name.split(".")[-1] in towers)
    return next(named, model)


def reference(folder: Path) -> dict[str, np.ndarray]:
    """Pooled ``hidden_states[1:]``, every picture alone: (N, L, D)."""
    processor = transformers.ViTImageProcessorPil.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    part = part_of(model)
    pooled: dict[str, list[torch.Tensor]] = {pool: [] for pool in POOLS}
    for row in noise():
        pixels = processor(images=row.array, input_data_format="channels_last", return_tensors="pt")
        with torch.no_grad():
            output = part(pixel_values=pixels["pixel_values"], output_hidden_states=True)
        layers = torch.stack(output.hidden_states[1:])[:, 0].double()
        if not any(pooled.values()):
            patch_P = patches_of(part, pixels["pixel_values"])
        patches = layers[:, patch_P]
        pooled["mean"].append(patches.mean(1))
        pooled["max"].append(patches.amax(1))
        pooled["last"].append(patches[:, -1])
    return {pool: torch.stack(states).numpy() for pool, states in pooled.items()}


def patches_of(part: Any, pixel_1CHW: torch.Tensor) -> list[int]:
    """Positions on which pixels have an influence before the first layer."""
    pixels = pixel_1CHW.clone().requires_grad_()
    first = part(pixel_values=pixels, output_hidden_states=True).hidden_states[0][0]
    found = []
    for position, state_D in enumerate(first):
        if not state_D.requires_grad:
            continue
        (gradient,) = torch.autograd.grad(
            (state_D * torch.randn_like(state_D)).sum(), pixels, retain_graph=True
        )
        if gradient.abs().max() > 0:
            found.append(position)
    return found


def extract(folder: Path) -> tuple[dict[str, np.ndarray], Any]:
    config = ExtractConfig(encoder=str(folder), device="cpu", pool=POOLS)
    encoder = VisionEncoder.open(config)
    encoder.load()
    rows = noise()
    items = list(encoder.prepare(rows).items)
    whole = encoder.encode(items)
    parts = [encoder.encode(items[i : i + 3]) for i in range(0, len(items), 3)]
    for pool in POOLS:
        states = torch.cat([part[pool] for part in parts])
        gap = (states - whole[pool]).norm(dim=-1) / whole[pool].norm(dim=-1)
        assert gap.max() <= RIGHT, f"other batches give other states: {gap.max():.1e}"
    return {pool: states.numpy() for pool, states in whole.items()}, encoder


def judge(name: str, root: Path) -> dict[str, Any]:
    """What becomes of one architecture: {"verdict", "about"}."""
    folder = root / "encoder"
    try:
        build(name, folder)
    except Exception as error:  # noqa: BLE001
        return {"verdict": "not buildable", "about": f"{type(error).__name__}: {error!s:.200}"}
    try:
        states, encoder = extract(folder)
    except GaamError as error:
        said = "; ".join([error.message, *error.details.values()]).replace(str(root), "")
        return {"verdict": "refused", "about": said}
    except Exception:  # noqa: BLE001 what must not happen is counted
        return {"verdict": "crashed", "about": traceback.format_exc()[-1500:]}
    layout = list(encoder._forward.layout)
    seen = {"layout": layout, "batching": encoder.batching, "layers": encoder.num_layers}
    try:
        expected = reference(folder)
    except Exception as error:  # noqa: BLE001
        about = f"no reference: {type(error).__name__}: {error!s:.200}"
        return {"verdict": "wrong", "about": about, **seen}
    worst = 0.0
    for pool in POOLS:
        if states[pool].shape != expected[pool].shape:
            return {"verdict": "wrong", "about": f"{expected[pool].shape} expected", **seen}
        gap = np.linalg.norm(states[pool] - expected[pool], axis=-1)
        worst = max(worst, float((gap / np.linalg.norm(expected[pool], axis=-1)).max()))
    verdict = "right" if worst <= RIGHT else "wrong"
    return {"verdict": verdict, "about": f"{worst:.1e}", **seen}


def walk(chosen: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(prefix="gaam-architecture-") as folder:
        judge("vit", Path(folder))  # imports once what every fork needs
    for name in chosen:
        yield name, in_a_process(name, judge)


def table(results: dict[str, dict[str, Any]]) -> str:
    """How many of each."""
    count: collections.Counter[str] = collections.Counter()
    for result in results.values():
        kind = result["verdict"]
        if kind == "refused":
            reason = (
                result["about"].split("of one size; ")[-1].removesuffix("; choose another encoder")
            )
            kind += ": " + re.sub(r"[0-9][0-9.e+-]*|model_type: .*", "N", reason)[:120]
        count[kind] += 1
    lines = [f"{number:4d}  {kind}" for kind, number in sorted(count.items())]
    return "\n".join([f"{len(results):4d}  architectures", *lines])


if __name__ == "__main__":
    main(names, walk, table)
