"""Texts within a prompt, and which of their tokens are the text's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import transformers

from gaam_cache.encoders._inputs import Inputs
from gaam_cache.encoders._text.prompt import Prompt
from gaam_cache.encoders._text.spans import Cut, Whose, cut, whose
from gaam_cache.encoders._text.tokens import TWICE, Tokens, random_tokens
from gaam_cache.errors import ConfigError
from gaam_cache.messages import excerpt


class PromptedTokens(Tokens):
    """Texts within a prompt as token ids, of which the text's own may be pooled alone.

    A text that is too long is cut, and not the prompt. Whether there is a prompt or not, every text
    is read whole and cut afterwards.

    Args:
        tokenizer: of the encoder; it must say where its tokens stand.
        model_config: which knows tokens too.
        name: of the encoder, for messages.
        prompt: that is around every text; None where there is none.
        over_text: whether the text's own tokens are pooled alone.

    Raises:
        ConfigError: the tokenizer does not say where its tokens stand.
    """

    def __init__(
        self,
        tokenizer: transformers.PreTrainedTokenizerBase,
        model_config: transformers.PretrainedConfig,
        name: str,
        *,
        prompt: Prompt | None,
        over_text: bool,
    ) -> None:
        super().__init__(tokenizer, model_config, name)
        self.prompt = prompt
        self._over_text = over_text
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                "the tokenizer does not say where in a text its tokens stand",
                expected="a tokenizer with a tokenizer.json, which --prompt and pool-over need",
                found=type(tokenizer).__name__,
                where=name,
            )

    def check_room(self, max_length: int) -> None:
        """Refuse a prompt beside which no token of a text fits.

        Raises:
            ConfigError: saying what it takes.
        """
        if self.prompt is None:
            return
        [ids] = self.ids([self.prompt.around("")])
        if len(ids) >= max_length:
            raise ConfigError(
                "the prompt leaves no room for a text",
                expected=f"a --max-length of {len(ids) + 1} tokens or more, of which the prompt "
                f"takes {len(ids)}, or a shorter prompt",
                found=f"a maximum length of {max_length}",
                where=self._name,
            )

    def prepare(self, rows: Sequence[str], max_length: int) -> Inputs:
        """Token ids of every text and its prompt; a text of which none is left has no length.

        Raises:
            ConfigError: the tokenizer fails, draws its tokens at random, or makes tokens of a text
                that do not stand together.
        """
        read = self._read(rows, max_length)
        if self._read(rows[:TWICE], max_length) != read[:TWICE]:
            raise random_tokens(self._name, "other tokens the second time")
        items = self._as_arrays([one.ids for one in read])
        lengths = items.length_N
        if self._over_text:
            span_N2 = np.array([(one.start, one.stop) for one in read], np.int64).reshape(-1, 2)
            items = items.with_spans(span_N2)
        # without a prompt and pooled over all, an empty text is what its special tokens are
        lost = [one.start == one.stop and (self._over_text or one.truncated) for one in read]
        return Inputs(
            items=items,
            lengths=np.where(lost, 0, lengths),
            truncated=[one.truncated for one in read],
        )

    def _read(self, rows: Sequence[str], max_length: int) -> list[Cut]:
        around = self.prompt or Prompt("", "")
        encoded = self._encoded([around.around(row) for row in rows])
        side = getattr(self.tokenizer, "truncation_side", "right")
        found = []
        columns = (encoded[key] for key in ("input_ids", "offset_mapping", "special_tokens_mask"))
        for row, ids, offsets, special in zip(rows, *columns, strict=True):
            special_T = np.asarray(special, bool)
            if self.prompt is None:
                parts = Whose(~special_T, ~special_T)
            else:
                offset_T2 = np.asarray(offsets, np.int64).reshape(-1, 2)
                first = len(around.before)
                parts = whose(offset_T2, special_T, first, first + len(row))
            one = cut(ids, parts, max_length, "left" if side == "left" else "right")
            if one is None:
                raise ConfigError(
                    "the tokens of a text do not stand together",
                    expected="a tokenizer whose tokens follow the text",
                    found=f"others between those of {excerpt(row)}",
                    where=self._name,
                )
            found.append(one)
        return found

    def _encoded(self, texts: list[str]) -> Any:
        """All tokens of every text, where they stand, and which the tokenizer added.

        Raises:
            ConfigError: the tokenizer fails.
        """
        try:
            return self.tokenizer(
                texts,
                add_special_tokens=True,
                padding=False,
                truncation=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                verbose=False,
            )
        except Exception as error:  # tokenizers of others raise what they like
            raise self._unread(error) from error
