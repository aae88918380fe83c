"""Text encoders of the transformers library, BERT-like and Llama-like.

B batch, T tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import torch
import transformers
from torch import nn

from gaam_cache.encoders._base import Inputs
from gaam_cache.encoders._forward import Batch, Forward, Span, Unusable
from gaam_cache.encoders._located import usual_length
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._probe import ROWS, Items
from gaam_cache.encoders._tokens import Spanned, Tokens

CAUSAL_SHIFT = 1e-6
"""Largest relative effect of a later token that counts as none: a causal model that is taken for
another loses some speed, the other mistake would cost the states their truth."""
SHORT_LENGTHS = (1, 2, 3, 5, 8, 12, 17, 23, 31, 47, 64)
"""Of texts that are tried together."""
LONG_TEXTS = 4
"""Lengths just beyond a window or switch of the configuration that are tried, at most."""
WINDOW = re.compile(
    r"window|block|chunk|original_max|local|stride|conv.*kernel|max_distance|buckets"
)
"""Settings of a configuration that may name a length at which a model begins to act otherwise."""


class TextEncoder(ModelEncoder):
    """Token ids in, pooled states of every layer out; of an encoder-decoder model its encoder's.

    Causal models run with right padding, no attention mask and no key-value cache: a real token
    never sees the padding behind it, and the kernel for plain causal attention stays available.
    Others get a mask, in batches that have padding. Where that is not enough, ``batching`` says
    which texts may share a batch.
    """

    given: ClassVar[frozenset[str]] = frozenset({"input_ids"})
    reads: ClassVar[str] = "a text encoder and tokenizer"
    states_of: ClassVar[str] = "token"
    takes: ClassVar[frozenset[str]] = ModelEncoder.takes | {"prompt", "prompt_file", "pool_over"}
    _tokens: Tokens
    _forward: _TextForward

    def _read(self) -> int:
        folder = self._located.path
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        self._tokens = Tokens(tokenizer, self._model_config, folder, self._config)
        self.usual_length = usual_length(self.name, folder)
        return self._tokens.max_length

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"special_tokens": True}
        if self._tokens.prompt is not None:
            settings["prompt"] = self._tokens.prompt
        if self._config.pool_over != "all":
            settings["pool_over"] = self._config.pool_over
        return settings

    def _more_files(self) -> set[str]:
        return self._tokens.files()

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, cut at the maximum length; raises as ``Tokens.prepare``."""
        return self._tokens.prepare(rows)

    def _forward_of(self, part: Any, model: Any) -> _TextForward:
        forward = _TextForward(part, device=self.device, pooling=self._config.pool)
        size = getattr(self._model_config.get_text_config(), "vocab_size", None)
        for one in (model, part):
            with suppress(NotImplementedError, AttributeError):
                if isinstance(found := one.get_input_embeddings(), nn.Embedding):
                    size = found.num_embeddings
        forward.vocabulary = size
        forward.pad_id = next(iter(self._tokens.pad_ids(size)), 0)
        if "token_type_ids" in forward.takes and self._tokens.have_types():
            raise Unusable("its tokenizer gives tokens types other than 0 (token_type_ids)")
        return forward

    def _candidates(self, part: Any) -> tuple[Sequence[Items], int]:
        """Texts with the model's marks in them; and texts without, if a mark asks for a picture."""
        size, tokenizer = self._forward.vocabulary, self._tokens.tokenizer
        shortest = max(1, tokenizer.num_special_tokens_to_add())
        lengths = probe_lengths(self._model_config.to_dict(), shortest, self.max_length)
        avoid = tokenizer.all_special_ids
        marked = [self._tokens.marks(part, size), []]
        return [probe_texts(lengths, size, avoid, marks) for marks in marked], SHORT_LENGTHS[-1]


class _TextForward(Forward):
    """Token ids, filled on the right."""

    pad_id = 0
    vocabulary: int | None = None
    """How many token ids the model has embeddings for."""

    def batch(self, items: Sequence[Any]) -> Batch:
        """Token ids as (B, T), and their mask."""
        spanned = isinstance(items[0], Spanned)
        texts = [one.ids for one in items] if spanned else items
        length_N = np.fromiter(map(len, texts), np.int64, len(texts))
        longest = int(length_N.max())
        real_BT = np.arange(longest) < length_N[:, None]
        ids_BT = np.full(real_BT.shape, self.pad_id, np.int64)
        ids_BT[real_BT] = np.concatenate(texts)
        if self.vocabulary is not None and (largest := int(ids_BT.max())) >= self.vocabulary:
            has = f"the model has embeddings for {self.vocabulary}"
            raise Unusable(f"the tokenizer makes the token {largest}, {has}")
        span = None
        if spanned:
            start_B, stop_B = np.array([(one.start, one.stop) for one in items], np.int64).T
            count_B = stop_B - start_B
            width = max(1, int(count_B.max()))
            span = Span(self.to_device(start_B.copy()), self.to_device(count_B), width)
        length_B = self.to_device(length_N)
        position_T = torch.arange(longest, device=self.device)
        return Batch(
            inputs={"input_ids": self.to_device(ids_BT)},
            length_B=length_B,
            mask=(position_T < length_B[:, None]).long(),
            padded=int(length_N.min()) < longest,
            positions=longest,
            span=span,
        )

    def is_causal(self, items: Sequence[Any]) -> bool:
        """Whether another last token shifts no state before it: not at all, where it is causal."""
        for ids in (items[len(items) // 2], items[-1]):
            if len(ids) < 2:
                return False
            other = next((i for text in items for i in text if i != ids[-1]), ids[-1])
            runs = []
            for tokens in (ids, [*ids[:-1], other]):
                try:
                    batch = self.batch([np.array(tokens)])._replace(mask=None)
                    _, layers = self.hidden_states(batch)
                except Unusable:
                    return False
                runs.append(layers[-1][:, :-1].float())
            if not bool((runs[0] - runs[1]).norm() <= CAUSAL_SHIFT * runs[0].norm()):
                return False
        return True


def probe_lengths(settings: dict[str, Any], shortest: int, max_length: int) -> list[int]:
    """Lengths of the texts that are tried, in order: short ones, beyond windows, the maximum.

    And one that is no multiple of a block, where the maximum is: BigBird fills up others.
    """
    windows = set(_windows(settings))
    beyond = sorted({w + 1 for w in windows if SHORT_LENGTHS[-1] <= w < max_length})
    blocks = any(w > 1 and max_length % w == 0 for w in windows)
    chosen = {shortest, *SHORT_LENGTHS, *beyond[:LONG_TEXTS], max_length - blocks, max_length}
    return sorted(n for n in chosen if min(shortest, max_length) <= n <= max_length)


def _windows(settings: Any, name: str = "") -> Iterator[int]:
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _windows(value, f"{name}.{key}")
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _windows(value, name)
    elif type(settings) is int and WINDOW.search(name):
        yield settings


def probe_texts(
    lengths: list[int], vocabulary: int | None, avoid: Sequence[int], marks: Sequence[int]
) -> list[list[int]]:
    """Token ids of texts that begin alike for nobody, from the shortest to the longest.

    The second text of every length has the marks in it, spread from its first to its last token.
    """
    size = vocabulary or 256
    # from the middle: ids that mean something and are not declared lie at the ends
    free = [i for i in range(size // 4, size - size // 4) if i not in set(avoid)] or [0]
    rng = np.random.default_rng(0)
    counts = [ROWS if length <= SHORT_LENGTHS[-1] else 1 for length in lengths]
    texts = []
    for length, count in zip(lengths, counts, strict=True):
        for number in range(count):
            ids = [free[i] for i in rng.integers(len(free), size=length)]
            for i, mark in enumerate(marks if number else ()):
                ids[i * (length - 1) // max(1, len(marks) - 1)] = mark
            texts.append(ids)
    return texts
