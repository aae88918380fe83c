"""Texts as token ids: the same each time, not too many, and all of a shard in one array.

N texts, S tokens of all of them, B texts of a batch, T tokens of the longest.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gaam_cache.encoders._base import Inputs
from gaam_cache.encoders._weights import encoder_part, foreign, skeleton
from gaam_cache.errors import ConfigError

TWICE = 8
"""Texts of a shard that are tokenised twice: what is drawn at random is no state of a text."""
DEFAULT_MAX_LENGTH = 512


class Spanned(NamedTuple):
    """One text of which a part is pooled."""

    ids: NDArray[np.int64]
    start: int
    stop: int


class TokenIds(Sequence[Any]):
    """A sequence of texts, each an array of its token ids; ``Spanned`` where parts are pooled.

    Args:
        flat_S: ids of all texts one behind the other.
        length_N: how many each has.
        span_N2: first token that is pooled and the one behind, where parts are.
    """

    def __init__(
        self,
        flat_S: NDArray[np.int64],
        length_N: NDArray[np.int64],
        span_N2: NDArray[np.int64] | None = None,
    ) -> None:
        self.length_N, self.span_N2 = length_N, span_N2
        self._flat_S, self._end_N = flat_S, np.cumsum(length_N)

    @classmethod
    def of(cls, texts: Sequence[Any], spans: Sequence[tuple[int, int]] | None = None) -> TokenIds:
        """The same ids; texts that are some already come back as they are."""
        if isinstance(texts, cls):
            return texts
        if texts and isinstance(texts[0], Spanned):
            return cls.of([one.ids for one in texts], [(one.start, one.stop) for one in texts])
        flat = array("q")  # refuses fractions, as NumPy does not, and is twice as fast
        for ids in texts:
            flat.fromlist(ids if isinstance(ids, list) else list(ids))
        length_N = np.fromiter(map(len, texts), np.int64, len(texts))
        span_N2 = None if spans is None else np.array(spans, np.int64).reshape(-1, 2)
        return cls(np.array(flat, np.int64), length_N, span_N2)

    def take(self, row_B: NDArray[np.int64]) -> TokenIds:
        """Some of the texts, in this order."""
        length_B = self.length_N[row_B]
        ahead_B = np.cumsum(length_B) - length_B
        shift_B = self._end_N[row_B] - length_B - ahead_B
        place_S = np.arange(int(length_B.sum())) + np.repeat(shift_B, length_B)
        span_B2 = None if self.span_N2 is None else self.span_N2[row_B]
        return TokenIds(self._flat_S[place_S], length_B, span_B2)

    def padded(self, pad_id: int) -> NDArray[np.int64]:
        """All texts as (B, T), filled on the right."""
        shape = len(self), int(self.length_N.max(initial=0))
        ids_BT = np.full(shape, pad_id, np.int64)
        ids_BT[np.arange(shape[1]) < self.length_N[:, None]] = self._flat_S
        return ids_BT

    def __len__(self) -> int:
        return len(self.length_N)

    def __getitem__(self, index: Any) -> Any:
        """One text; several by a slice."""
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        end = int(self._end_N[index])
        ids = self._flat_S[end - int(self.length_N[index]) : end]
        return ids if self.span_N2 is None else Spanned(ids, *map(int, self.span_N2[index]))


class Tokens:
    """The tokenizer of an encoder."""

    def __init__(self, tokenizer: Any, model_config: Any, folder: Path) -> None:
        self.tokenizer = tokenizer
        self._text_config = model_config.get_text_config()
        self._folder = folder
        names = sorted(tokenizer.vocab_files_names.values())
        if names and not any((folder / name).is_file() for name in self.files()):
            raise ConfigError(
                f"'{folder}' holds no tokenizer",
                expected=f"one of: {', '.join(names)}",
                found="none of them",
                hint="save it there: AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
            )

    def prepare(self, rows: Sequence[str], max_length: int) -> Inputs:
        """Token ids of every text, special tokens included, cut at the maximum length."""
        cut = self.ids(rows, max_length)
        self.check_same(cut[:TWICE], self.ids(rows[:TWICE], max_length))
        items = self.as_arrays(cut)
        full = np.flatnonzero(items.length_N == max_length).tolist()
        truncated = [False] * len(cut)
        if full:
            # only a text that fills the maximum can have been cut: ask for its true length
            for i, ids in zip(full, self.ids([rows[i] for i in full]), strict=True):
                truncated[i] = len(ids) > max_length
        return Inputs(items=items, lengths=items.length_N, truncated=truncated)

    def ids(self, rows: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Token ids of every text, special tokens included."""
        options = {"truncation": max_length is not None, "max_length": max_length}
        found: list[list[int]] = self.read(rows, **options)["input_ids"]
        return found

    def read(self, rows: Sequence[str], **options: Any) -> Any:
        """What the tokenizer makes of texts."""
        with foreign("the tokenizer cannot read a text", self._folder):
            return self.tokenizer(
                list(rows),
                add_special_tokens=True,
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
                **options,
            )

    def as_arrays(
        self, texts: list[list[int]], spans: Sequence[tuple[int, int]] | None = None
    ) -> TokenIds:
        """Texts that the tokenizer has read; of one that it has no token for there may be None."""
        with foreign("the tokenizer cannot read a text", self._folder):
            return TokenIds.of(texts, spans)

    def check_same(self, first: Any, again: Any) -> None:
        """Refuse a tokenizer of which a text has no tokens of its own."""
        if first != again:
            raise ConfigError(
                "the tokenizer draws tokens at random",
                expected="the same tokens whenever a text is read",
                where=str(self._folder),
                hint="copy the encoder and turn that off in the copy (of BPE: dropout null)",
            )

    def have_types(self) -> bool:
        """Whether the tokenizer tells tokens of one text apart by a type."""
        for text in ("", "a"):
            with suppress(Exception):  # it may have no token for this; rows are for prepare to try
                encoded = self.tokenizer([text], return_token_type_ids=True, verbose=False)
                if any(map(any, encoded.get("token_type_ids") or [])):
                    return True
        return False

    def files(self) -> set[str]:
        """Names of the files that the tokenizer reads."""
        given = [value for value in self.tokenizer.init_kwargs.values() if isinstance(value, str)]
        names = self.tokenizer.vocab_files_names.values()
        return {*names, *(Path(value).name for value in given)}

    def pad_ids(self, size: int | None) -> list[int]:
        """Tokens that fill batches, for the tokenizer or for the model."""
        named = [getattr(self._text_config, name, None) for name in ("pad_token_id", "pad_index")]
        given = (self.tokenizer.pad_token_id, *named)
        return [i for i in given if type(i) is int and 0 <= i < (size or i + 1)]

    def marks(self, model: Any, size: int | None) -> list[int]:
        """Tokens of no word that a text may hold all the same."""
        around = self.ids([""])[0]
        tables = (module for module in model.modules() if isinstance(module, nn.Embedding))
        zero = (t.padding_idx for t in tables if t.num_embeddings == size)
        found = [*around[:1], *self.pad_ids(size), *zero, *around[1:]]
        return list(dict.fromkeys(i for i in found if i is not None and i < (size or i + 1)))


def choose_max_length(asked: int | None, tokenizer: Any, model_config: Any) -> int:
    """The longest text in tokens: as asked, else 512 or the encoder's limit."""
    # a tokenizer that finds no room for its special tokens does not cut at all
    special = tokenizer.num_special_tokens_to_add()
    if asked is not None and asked <= special:
        raise ConfigError(
            "--max-length leaves no room for the text",
            expected=f"at least {special + 1} tokens: {special} of every text are special ones",
            found=str(asked),
        )
    text_config = model_config.get_text_config()
    positions = getattr(text_config, "max_position_embeddings", None)
    limits = [n for n in (tokenizer.model_max_length, positions) if n and 0 < n < 10**9]
    pad = getattr(text_config, "pad_token_id", None) or 0
    wanted = min([asked or DEFAULT_MAX_LENGTH, *limits])
    if limits and positions and wanted > positions - pad - 1:
        # whether the model counts from behind padding on, as RoBERTa, only its own structure tells
        limits += [
            module.num_embeddings - module.padding_idx - 1
            for name, module in encoder_part(skeleton(model_config)).named_modules()
            if type(module) is nn.Embedding
            and module.padding_idx is not None
            and "position" in name.lower()
            and "type" not in name.lower()
        ]
    limit = int(min(limits, default=asked or DEFAULT_MAX_LENGTH))
    if asked is not None and asked > limit:
        raise ConfigError(
            "--max-length is more than the encoder can take",
            expected=f"at most {limit} tokens",
            found=str(asked),
        )
    return asked or min(DEFAULT_MAX_LENGTH, limit)
