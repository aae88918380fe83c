"""Text encoders of the transformers library, BERT-like and Llama-like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
import transformers
from torch import Tensor

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._inputs import Inputs
from gaam_cache.encoders._located import Located
from gaam_cache.encoders._model.choices import check_reads
from gaam_cache.encoders._model.encoder import ModelEncoder
from gaam_cache.encoders._model.forward import Unusable
from gaam_cache.encoders._model.probe import Items
from gaam_cache.encoders._text.choices import choose_max_length
from gaam_cache.encoders._text.forward import TextForward, text_part, vocabulary
from gaam_cache.encoders._text.probe_texts import SHORT_LENGTHS, probe_lengths, probe_texts
from gaam_cache.encoders._text.prompt import Prompt
from gaam_cache.encoders._text.prompted import PromptedTokens
from gaam_cache.encoders._text.tokens import Tokens, check_tokenizer
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.messages import excerpt

OUTLINE_TOKENS = 128
"""Of the text by which the shape is told without weights."""


class TextEncoder(ModelEncoder):
    """Token ids in, pooled states of every layer out.

    Of an encoder-decoder model the encoder is used.

    Numerics:
        Causal models run with right padding, no attention mask and no key-value cache: a real
        token never sees the padding behind it, and the kernel for plain causal attention stays
        available. Others get a mask, in batches that have padding. Where that is not enough,
        ``batching`` says which texts may share a batch.
    """

    reads: ClassVar[str] = "a text encoder and tokenizer"
    takes: ClassVar[frozenset[str]] = ModelEncoder.takes | {"prompt", "prompt_file", "pool_over"}
    _tokens: Tokens
    _prompt: Prompt | None = None

    @classmethod
    def _read(
        cls, located: Located, config: ExtractConfig, model_config: transformers.PretrainedConfig
    ) -> Self:
        check_reads(model_config, config.encoder, "input_ids", cls.reads)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            located.path, local_files_only=True, trust_remote_code=False
        )
        check_tokenizer(tokenizer, located.path)
        longest = choose_max_length(config.max_length, tokenizer, model_config)
        encoder = cls(located, config, model_config, longest)
        encoder._tokens = Tokens(tokenizer, model_config, config.encoder)
        prompt, over_text = Prompt.of(config.prompt, config.prompt_file), config.pool_over == "text"
        if prompt or over_text:
            tokens = PromptedTokens(
                tokenizer, model_config, config.encoder, prompt=prompt, over_text=over_text
            )
            tokens.check_room(longest)
            encoder._tokens = tokens
            encoder._prompt = prompt
        return encoder

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"special_tokens": True}
        if self._prompt is not None:
            settings["prompt"] = str(self._prompt)
        if self._config.pool_over != "all":
            settings["pool_over"] = self._config.pool_over
        return settings

    def _more_files(self) -> set[str]:
        return self._tokens.files()

    def _part_of(self, model: Any) -> Any:
        return text_part(model)

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, cut at the maximum length; raises as ``Tokens.prepare``."""
        return self._tokens.prepare(rows, self.max_length)

    def refuse_empty(self, row: str, where: str) -> DataError:
        """A text without tokens, or none that is left beside its prompt."""
        if isinstance(self._tokens, PromptedTokens):
            return DataError(
                "no token of a text is left to pool"
                if self._config.pool_over == "text"
                else "no token of a text is left beside the prompt",
                expected=f"at least one, and no more than {self.max_length} with what is around it",
                found=excerpt(row),
                where=where,
                hint="remove the row, or look at the prompt and at --max-length",
            )
        return DataError(
            "the tokenizer makes no token of a text",
            expected="at least one token",
            found=repr(row),
            where=where,
            hint="remove the row",
        )

    def _without_numbers(self) -> dict[str, Tensor]:
        length = min(OUTLINE_TOKENS, self.max_length)
        return {"input_ids": torch.zeros((1, length), dtype=torch.long, device="meta")}

    def _forward_of(self, part: Any, model: Any) -> TextForward:
        size = self._vocabulary(part, model)
        forward = TextForward(
            part,
            device=self.device,
            pooling=self._config.pool,
            pad_id=self._tokens.pad_id(size),
            vocabulary=size,
        )
        if "token_type_ids" in forward.takes and self._tokens.have_types():
            raise Unusable(
                "its tokenizer gives tokens types other than 0 (token_type_ids), which would have "
                "to reach the model"
            )
        return forward

    def _vocabulary(self, part: Any, model: Any) -> int | None:
        text_config = self._model_config.get_text_config()
        return vocabulary(part, model) or getattr(text_config, "vocab_size", None)

    def _candidates(self, part: Any, model: Any) -> tuple[Sequence[Items], int]:
        """Texts with the tokens in them that mean something to the model, and texts without.

        Those that real texts have: what the tokenizer puts around a text, and what fills batches,
        which a text may hold too and a model may take for the end of it. A mark may ask for more
        than text, such as a picture.
        """
        size = self._vocabulary(part, model)
        tokenizer = self._tokens.tokenizer
        shortest = max(1, tokenizer.num_special_tokens_to_add())
        lengths = probe_lengths(self._model_config.to_dict(), shortest, self.max_length)
        avoid = tokenizer.all_special_ids
        marked = [self._tokens.marks(part, size), []]
        return [probe_texts(lengths, size, avoid, marks) for marks in marked], SHORT_LENGTHS[-1]

    def _failed(self, reason: Unusable) -> ConfigError:
        return ConfigError(
            f"'{self.name}' does not yield a state for every layer and token",
            expected="a text encoder whose hidden states transformers returns from token ids alone",
            found=str(reason),
            hint="leave layer-zero out"
            if "layer-zero" in str(reason)
            else "choose another encoder, or fewer tokens with --max-length",
        )
