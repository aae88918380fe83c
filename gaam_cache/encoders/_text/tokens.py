"""A tokenizer, held to what states need: a text has the same tokens each time, and not too many."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from torch import nn

from gaam_cache.encoders._inputs import Inputs
from gaam_cache.encoders._token_ids import TokenIds
from gaam_cache.errors import ConfigError

TWICE = 8
"""Texts of a shard that are tokenised twice: what is drawn at random is no state of a text."""


class Tokens:
    """Texts as token ids.

    Args:
        tokenizer: of the encoder.
        model_config: which knows tokens too.
        name: of the encoder, for messages.
    """

    def __init__(
        self,
        tokenizer: transformers.PreTrainedTokenizerBase,
        model_config: transformers.PretrainedConfig,
        name: str,
    ) -> None:
        self.tokenizer = tokenizer
        self._text_config = model_config.get_text_config()
        self._name = name

    def prepare(self, rows: Sequence[str], max_length: int) -> Inputs:
        """Token ids of every text, special tokens included, cut at the maximum length.

        Raises:
            ConfigError: the tokenizer cuts nothing, or draws its tokens at random.
        """
        cut = self.ids(rows, max_length)
        if self.ids(rows[:TWICE], max_length) != cut[:TWICE]:
            raise random_tokens(self._name, "other tokens the second time")
        items = self._as_arrays(cut)
        if (longest := int(items.length_N.max(initial=0))) > max_length:
            raise ConfigError(
                "the tokenizer does not cut texts at --max-length",
                expected=f"at most {max_length} tokens",
                found=f"a text of {longest}",
                where=self._name,
            )
        full = np.flatnonzero(items.length_N == max_length).tolist()
        truncated = [False] * len(cut)
        if full:
            # only a text that fills the maximum can have been cut: ask for its true length
            for i, ids in zip(full, self.ids([rows[i] for i in full]), strict=True):
                truncated[i] = len(ids) > max_length
        return Inputs(items=items, lengths=items.length_N, truncated=truncated)

    def ids(self, rows: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Token ids of every text, special tokens included.

        Raises:
            ConfigError: the tokenizer fails.
        """
        try:
            encoded = self.tokenizer(
                list(rows),
                add_special_tokens=True,
                padding=False,
                truncation=max_length is not None,
                max_length=max_length,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
        except Exception as error:  # tokenizers of others raise what they like
            raise self._unread(error) from error
        found: list[list[int]] = encoded["input_ids"]
        return found

    def _as_arrays(self, texts: list[list[int]]) -> TokenIds:
        try:
            return TokenIds.of(texts)
        except (TypeError, OverflowError) as error:
            raise self._unread(error) from error

    def _unread(self, error: Exception) -> ConfigError:
        return ConfigError(
            "the tokenizer cannot read a text",
            found=f"{type(error).__name__}: {error}",
            where=self._name,
            hint="look at the tokenizer: has it a token for what it does not know?",
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

    def pad_id(self, size: int | None) -> int:
        """What fills a batch: the tokenizer's token, else the model's, else any.

        Args:
            size: token ids that the model has embeddings for.
        """
        return next(iter(self._pad_ids(size)), 0)

    def _pad_ids(self, size: int | None) -> list[int]:
        """Tokens that fill batches, for the tokenizer or for the model."""
        named = [getattr(self._text_config, name, None) for name in ("pad_token_id", "pad_index")]
        given = (self.tokenizer.pad_token_id, *named)
        return [i for i in given if type(i) is int and 0 <= i < (size or i + 1)]

    def marks(self, model: Any, size: int | None) -> list[int]:
        """Tokens of no word that a text may hold all the same."""
        around = self.ids([""])[0]
        tables = (module for module in model.modules() if isinstance(module, nn.Embedding))
        zero = (t.padding_idx for t in tables if t.num_embeddings == size)
        found = [*around[:1], *self._pad_ids(size), *zero, *around[1:]]
        return list(dict.fromkeys(i for i in found if i is not None and i < (size or i + 1)))


def check_tokenizer(tokenizer: transformers.PreTrainedTokenizerBase, folder: Path) -> None:
    """Refuse a tokenizer without files, and one that draws its tokens at random.

    Where none of its files is there, transformers makes one up that knows no word.

    Raises:
        ConfigError: naming what is missing, or what is random.
    """
    kinds = tokenizer.vocab_files_names
    given = (Path(str(tokenizer.init_kwargs.get(kind))).name for kind in kinds)
    names = sorted({*kinds.values(), *given} - {"None"})
    if names and not any((folder / name).is_file() for name in names):
        raise ConfigError(
            f"'{folder}' holds no tokenizer",
            expected=f"one of: {', '.join(names)}",
            found="none of them",
            where=str(folder),
            hint="save the tokenizer there too: AutoTokenizer.from_pretrained(...)"
            ".save_pretrained(folder)",
        )
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if dropout := getattr(getattr(backend, "model", None), "dropout", None):
        raise random_tokens(str(folder), f"dropout {dropout:g} in tokenizer.json")


def random_tokens(where: str, found: str) -> ConfigError:
    """The refusal of a tokenizer of which a text has no tokens of its own."""
    return ConfigError(
        "the tokenizer draws tokens at random",
        expected="the same tokens whenever a text is read",
        found=found,
        where=where,
        hint="copy the encoder and turn that off in the copy (of BPE: dropout null)",
    )
