"""The headline encoder on a GPU: Llama-2-13B's architecture, random bfloat16 weights.

    python -m tests.benchmarks.bench_gpu [--rows 4096] [--json FILE] [--tiny]

The real pipeline, from rows to published shards, on random token ids whose lengths follow those of
AG News; beside it the published loop, one text at a time with ``output_hidden_states``. Prints
tokens per second, the share of the measured bfloat16 matrix-product ceiling, peak memory above the
weights, padding, and the projected time for all of AG News. ``--tiny`` runs a small model on
whatever device there is: it shows that the script works and says nothing about speed.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Inputs
from gaam_cache.encoders._located import Located
from gaam_cache.encoders.text import TextEncoder
from tests.benchmarks._machine import describe, matrix_product_flops, synchronise
from tests.benchmarks.bench_extract import flops_per_token

LOG_MEAN, LOG_SD = 3.92, 0.31
"""Of the token counts of 4,999 AG News texts under MiniLM's tokenizer (mean 53)."""
AG_NEWS_ROWS = 127_600
LLAMA_2_13B = {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}


class RandomLlama(TextEncoder):
    """A Llama whose weights and token ids are random; a row's text is its number of tokens."""

    def __init__(self, config: ExtractConfig, shape: dict[str, int]) -> None:
        self.llama_config = transformers.LlamaConfig(**shape)
        tokenizer = SimpleNamespace(model_max_length=4096, pad_token_id=0)
        located = Located(path=Path(), revision=None)
        super().__init__(located, config, tokenizer, self.llama_config)  # type: ignore[arg-type]
        self.generator = np.random.default_rng(0)

    def identity(self) -> dict[str, Any]:
        """Nothing to hash: the weights are random."""
        return {"random": True, "dtype": self.dtype}

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Random ids of the given lengths."""
        lengths = [int(row) for row in rows]
        size = self.llama_config.vocab_size
        items = [self.generator.integers(3, size, length).tolist() for length in lengths]
        return Inputs(items=items, lengths=lengths, truncated=[False] * len(rows))

    def load(self) -> None:
        """Make the model on its device, in its type."""
        torch.set_default_dtype(getattr(torch, self.dtype))
        with torch.device(self.device):
            model = transformers.AutoModel.from_config(self.llama_config)
        torch.set_default_dtype(torch.float32)
        self._attach(model.eval())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available() and not arguments.tiny:
        print("no GPU here: nothing was measured (--tiny shows that the script runs)")
        return
    shape = TINY if arguments.tiny else LLAMA_2_13B
    lengths = np.random.default_rng(1).lognormal(LOG_MEAN, LOG_SD, arguments.rows).astype(int) + 1
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "train.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows(
                [("label", "text"), *(("ab"[i % 2], n) for i, n in enumerate(lengths))]
            )
        config = ExtractConfig(
            encoder="random-llama",
            dataset=folder,
            splits=("train",),
            dtype="bfloat16",
            out=Path(folder) / "cache",
            batch_tokens=arguments.batch_tokens,
        )
        encoder = RandomLlama(config, shape)
        TextEncoder.open = classmethod(lambda cls, config: encoder)  # type: ignore[method-assign]
        encoder.load()
        encoder.load = lambda: None  # type: ignore[method-assign] once is enough
        result = measure(config, encoder, lengths)
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


@torch.no_grad()
def one_at_a_time(encoder: RandomLlama, lengths: np.ndarray) -> float:
    """The published loop; tokens per second."""
    items = encoder.prepare([str(n) for n in lengths]).items
    synchronise(encoder.device)
    start = time.perf_counter()
    for ids in items:
        tokens = torch.tensor([ids], device=encoder.device)
        output = encoder._forward.model(input_ids=tokens, output_hidden_states=True)
        torch.stack([h[0].mean(0) for h in output.hidden_states[1:]]).float().cpu()
    return float(lengths.sum()) / (time.perf_counter() - start)


def measure(config: ExtractConfig, encoder: RandomLlama, lengths: np.ndarray) -> dict[str, Any]:
    """All figures."""
    device = encoder.device
    cuda = device.type == "cuda"
    weights = sum(p.numel() * p.element_size() for p in encoder._forward.model.parameters())
    ceiling = matrix_product_flops(device, torch.bfloat16)
    one_at_a_time(encoder, lengths[:8])  # warm up
    loop = one_at_a_time(encoder, lengths[:64])
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    summary = gaam_cache.extract(config)
    rate = summary.tokens / summary.seconds
    mean_length = float((lengths**2).sum() / lengths.sum())
    flops = flops_per_token(encoder._forward.model, mean_length)
    peak = torch.cuda.max_memory_allocated(device) - weights if cuda else None
    return {
        "machine": describe(device),
        "parameters": sum(p.numel() for p in encoder._forward.model.parameters()),
        "rows": len(lengths),
        "tokens_per_second": rate,
        "one_at_a_time_tokens_per_second": loop,
        "ratio": rate / loop,
        "ceiling_tflops": ceiling / 1e12,
        "share_of_ceiling": rate * flops / ceiling,
        "padding_share": summary.padding_share,
        "peak_memory_above_weights_gb": peak and peak / 1e9,
        "write_share_beside_the_encoder": summary.write_seconds / summary.seconds,
        "projected_ag_news_hours": AG_NEWS_ROWS * float(lengths.mean()) / rate / 3600,
    }


if __name__ == "__main__":
    main()
