"""Every architecture that transformers maps to a model, tiny and random, through the extraction.

    python -m tests.benchmarks.architectures FILE.json [NAME ...]

Each is built from a configuration that was shrunk by the names of its fields, saved with a
tokenizer, extracted from as a user would, and compared with ``hidden_states[1:]`` of transformers
itself, one text at a time, in a fresh copy of the model. Each has a process of its own, with bounds
on memory and time: one bad architecture ends no other. It holds README's "states that prove
themselves" for every architecture.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from gaam_cache.common.errors import GaamError
from gaam_cache.store.plan import read_plan
from tests.contract.test_1_states import TOLERANCE, deviation, extract_split, pool_rows
from tests.tiny import WORDS, build_encoder, write_csv

SECONDS = 900
MEMORY = 8 * 2**30
PARAMETERS = 30_000_000
TIMES_ALONE = 4  # as much more rounding may be in a batch, whose kernels are others
MAX_LENGTH = 72
LENGTHS = (
    1,
    1,
    2,
    3,
    4,
    5,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    18,
    22,
    31,
    32,
    33,
    40,
    63,
    64,
    75,
    95,
)

RECIPES = [
    {"hidden": 32, "heads": 4, "kv": 2, "head": 8, "inner": 48},
    {"hidden": 32, "heads": 4, "kv": 4, "head": 8, "inner": 64},
    {"hidden": 64, "heads": 2, "kv": 1, "head": 32, "inner": 64},
    {"hidden": 64, "heads": 4, "kv": 4, "head": 16, "inner": 128},
    {"hidden": 64, "inner": 128},
    {},  # sizes as they are by default
]
"""Sizes that are tried in turn, until transformers builds a model from them and runs it."""

RULES: list[tuple[str, str | int]] = [
    # a pattern of the field's name -> a size of the recipe, or a number; the first that fits
    (r"vocab_size|vocabulary_size|^n_vocab$|num_embeddings$|char_vocab|alphabet_size", 64),
    (r"head_dim|headdim|d_kv|d_head|dim_head|head_size|attention_head_size|kv_channels", "head"),
    (r"num_(key_value|kv)_heads|multi_query_group|num_.*kv.*heads|n_head_kv", "kv"),
    (r"heads$|n_head$|_nhead$|num_attention_heads|encoder_attention_heads", "heads"),
    (r"num_hidden_groups|inner_group_num|num_.*_groups|n_groups?$|num_groups", 1),
    (r"num_experts_per|top_k|topk|experts_per_tok|moe_k$", 2),
    (r"num_.*experts|n_.*experts|num_local_experts|moe_num_experts", 4),
    (r"intermediate|ffn|inner|mlp_dim|ff_dim|d_ff|feed_?forward|dim_feed|n_inner", "inner"),
    (r"capacity", 4),
    (r"rotary_dim", "head"),
    (r"lora_rank|_rank$|rank$|rope_head_dim", 8),
    (r"num_.*layers|n_layers?$|_layers$|num_blocks|^depth$|^depths$", 3),
    (r"sliding_window|attention_window|window_size|local_window|window$", 16),
    (r"original_max_position|chunk_size|chunk_length|attention_chunk|block_size|local_radius", 16),
    (r"max_position_embeddings|n_positions|max_seq|max_.*positions|seq_length|n_ctx", 128),
    (r"hidden_size|d_model|n_embd|embed_dim|embedding_size|hidden_dim|^dim$|width|"
     r"projection_dim|embedding_dim|emb_dim|proj_dim|model_dim|_hidden$|_dim$|lru", "hidden"),
    (r"bottleneck", "hidden"),
    (r"image_size|crop", 32),
    (r"patch_size", 8),
    (r"num_mel_bins|num_queries|num_query|n_mels", 8),
]  # fmt: skip
SPECIAL = {"pad_token_id": 0, "unk_token_id": 1, "bos_token_id": 2, "cls_token_id": 2,
           "eos_token_id": 3, "sep_token_id": 3, "decoder_start_token_id": 2, "padding_idx": 0,
           "forced_eos_token_id": 3, "forced_bos_token_id": None, "sep_index": 3}  # fmt: skip


def shrink(cls: type, recipe: dict[str, int]) -> Any:
    """A configuration of few weights: every whole number goes by the name of its field."""
    default = cls()
    given: dict[str, Any] = {}
    tokens = iter(range(60, 40, -1))
    for key, value in default.to_dict().items():
        sub = getattr(cls, "sub_configs", {}).get(key)
        if key in ("out_indices", "out_features", "stage_names"):
            continue  # follows from the number of layers
        if sub is not None and key != "backbone_config":
            inner = getattr(default, key, None)
            kind = (
                type(inner) if isinstance(inner, transformers.PretrainedConfig) else sub
            )
            if kind is not transformers.AutoConfig:
                with contextlib.suppress(Exception):
                    given[key] = shrink(kind, recipe)
        elif key in SPECIAL:
            if value is not None:
                given[key] = SPECIAL[key]
        elif (
            re.search(r"token_(id|index)$|_id$|token_ids$", key) and type(value) is int
        ):
            given[key] = next(tokens)
        elif type(value) is int and value > 1:
            given[key] = _small(key, value, recipe)
        elif isinstance(value, dict) and "original_max_position_embeddings" in value:
            given[key] = value | {"original_max_position_embeddings": 16}
        elif isinstance(value, list) and value and all(type(x) is int for x in value):
            given[key] = [_small(key, x, recipe) for x in value[:3]]
    given |= {
        k: v
        for k, v in (("layer_types", None), ("mlp_layer_types", None))
        if k in given
    }
    return cls(**given)


def _small(key: str, value: int, recipe: dict[str, int]) -> int:
    for pattern, size in RULES:
        if re.search(pattern, key):
            small = recipe.get(size, value) if isinstance(size, str) else size
            return small if "layers" in key or "vocab" in key else min(value, small)
    return value


def build(name: str, folder: Path) -> Path:
    """Save a tiny random model: one that runs on token ids alone, or else any that can be drawn."""
    for must_run in (True, False):
        for recipe in RECIPES:
            with contextlib.suppress(Exception):  # what a foreign class does not like
                model = draw(shrink(transformers.CONFIG_MAPPING[name], recipe))
                if must_run:
                    part = encoder_of(model)
                    given = {"input_ids": torch.tensor([list(range(4, 20))])}
                    with torch.no_grad():
                        output = part(
                            **given, output_hidden_states=True, **without_cache(part)
                        )
                    assert all(torch.isfinite(x).all() for x in output.hidden_states)
                return save(model, folder)
    raise ValueError(f"no model of {name}")


def draw(config: Any, seed: int = 0) -> Any:
    """A model with weights larger than the usual initialisation, so that errors show."""
    with torch.device("meta"):
        bare = transformers.AutoModel.from_config(copy.deepcopy(config))
    if (count := sum(p.numel() for p in bare.parameters())) > PARAMETERS:
        raise ValueError(f"{count:,} parameters after shrinking")
    torch.manual_seed(seed)
    model = transformers.AutoModel.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter += 0.15 * torch.randn_like(parameter)
    return model


def encoder_of(model: Any) -> Any:
    """The part that reads texts: the text tower of a model of pictures or sounds too."""
    if model.config.model_type == "blip-2":
        return encoder_of(model.language_model)
    if hasattr(model, "text_model"):
        return encoder_of(model.text_model)
    return model.get_encoder() if model.config.is_encoder_decoder else model


def without_cache(model: Any) -> dict[str, bool]:
    """The option, for models that have it: some fail while they fill a cache."""
    takes = inspect.signature(model.forward).parameters
    return {"use_cache": False} if "use_cache" in takes else {}


def save(model: Any, folder: Path) -> Path:
    """With a tokenizer of words."""
    model.save_pretrained(build_encoder(folder, "bert"))
    return folder


def reference(
    folder: Path, rows: list[str], dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Pooled ``hidden_states[1:]`` of transformers, every text alone in a fresh model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    fresh = encoder_of(
        transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()
    )
    runs = []
    for text in rows:
        inputs = tokenizer(
            text, truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
        )
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        model = copy.deepcopy(fresh)
        with torch.no_grad():
            output = model(
                input_ids=ids, attention_mask=mask, output_hidden_states=True,
                **without_cache(model),
            )  # fmt: skip
        runs.append(torch.stack(output.hidden_states[1:])[:, 0])
        assert runs[-1].shape[1] == ids.shape[1]
    return pool_rows(runs)


def apart(states: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """The largest deviation, of the norm of its layer."""
    shares = [
        (states[name] - x).norm(dim=-1) / x.norm(dim=-1) for name, x in exact.items()
    ]
    return max(float(share_NL.max()) for share_NL in shares)


def judge(name: str, root: Path) -> dict[str, Any]:
    """What becomes of one architecture: a verdict, what it rests on, and how it was batched."""
    try:
        build(name, root / "encoder")
    except Exception as error:  # noqa: BLE001 what a foreign class does not like
        return {
            "verdict": "not buildable",
            "about": f"{type(error).__name__}: {error!s:.160}",
        }
    rng = np.random.default_rng(0)
    rows = [" ".join(rng.choice(WORDS, size=length)) for length in LENGTHS]
    write_csv(
        root / "data" / "train.csv", [("ab"[i % 2], row) for i, row in enumerate(rows)]
    )
    try:
        split = extract_split(
            root / "encoder",
            root / "data",
            root / "cache",
            max_length=MAX_LENGTH,
            batch_tokens=300,
        )
        alone, limit = reference(root / "encoder", rows, torch.float32), TOLERANCE
        worst = deviation(split, alone)
        if (
            worst > TOLERANCE
        ):  # what is as near to the exact state as transformers' own is right
            with contextlib.suppress(Exception):
                exact = reference(root / "encoder", rows, torch.float64)
                limit = max(TOLERANCE, TIMES_ALONE * apart(alone, exact))
                worst = min(worst, deviation(split, exact))
    except GaamError as error:
        said = "; ".join([error.message, *error.details.values()])
        kind = "wrong" if "another state in its batch" in said else "refused"
        return {"verdict": kind, "about": said}
    except Exception:  # noqa: BLE001 what must not happen is counted
        return {"verdict": "crashed", "about": traceback.format_exc()[-1500:]}
    batching = read_plan(root / "cache").batching
    verdict = "right" if worst <= limit else "wrong"
    return {"verdict": verdict, "about": f"{worst:.1e}", "batching": batching}


def in_a_process(name: str) -> dict[str, Any]:
    """``judge`` in a fork of this process, bounded in memory and time."""
    with tempfile.TemporaryDirectory(prefix="gaam-architecture-") as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            try:
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                signal.alarm(SECONDS)
                warnings.simplefilter("ignore")
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                answer.write_text(json.dumps(judge(name, Path(folder))))
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        if answer.exists():
            return json.loads(answer.read_text())
        built = (Path(folder) / "encoder" / "config.json").exists()
        verdict = "crashed" if built else "not buildable"
        return {"verdict": verdict, "about": f"its process ended with status {status}"}


def names() -> list[str]:
    """All that AutoModel maps and that takes token ids."""
    found = []
    for name, config in transformers.CONFIG_MAPPING.items():
        with contextlib.suppress(ImportError, ValueError, AttributeError, KeyError):
            mapped = transformers.MODEL_MAPPING[config]
            model = mapped[0] if isinstance(mapped, tuple) else mapped
            assert model is not None
            if "input_ids" in inspect.signature(model.forward).parameters:
                found.append(name)
    return found


if __name__ == "__main__":
    import gaam_cache.encoders.text
    import gaam_cache.extraction.extract  # noqa: F401 once, not in every fork

    transformers.logging.set_verbosity_error()
    results = {name: in_a_process(name) for name in sys.argv[2:] or names()}
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1))
