"""A bag of words: what a text says without any encoder.

B batch, D features.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gaam_cache.common.devices import resolve_device
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.common.messages import shortened
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.base import Encoder, Inputs
from gaam_cache.store.files import digest_of

if TYPE_CHECKING:
    from torch import Tensor

    from gaam_cache.sources.base import Rows

DEFAULTS = {"features": 4096, "ngrams": 1}
"""D, the words of the most texts; the longest sequence of words that counts as one more word."""
MOST = {"features": 2**20, "ngrams": 5}
FIXED = {"sublinear": True, "hashed": False}  # as plans have said since 0.1.0
MOST_WORDS = 1_000_000  # of a text, where ``--max-length`` does not say
IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0x20000, 0x3FFFF))
"""Scripts without spaces between words, of which every character counts as one."""


class TfidfEncoder(Encoder):
    """tf-idf vectors of the words of a text, as a cache of one layer.

    Formula: ``x_w = (1 + ln n_w) (ln((1 + N) / (1 + N_w)) + 1)``, divided by the norm of x; n_w how
    often the word w is in the text, N_w in how many of the N texts of the training split it is.

    Vocabulary and N_w come from the training split alone (or the first). Words are runs of letters,
    marks and digits of any script after NFKC and case folding, and single characters of scripts
    that do not part words. A text without any word that is known has the state zero.

    Source: the weights of scikit-learn's TfidfVectorizer with sublinear_tf.
    """

    called: ClassVar[str | None] = "text"

    def __init__(self, config: ExtractConfig) -> None:
        """Read ``tfidf:key=value,...``."""
        options = dict(DEFAULTS)
        for part in filter(None, config.encoder.partition(":")[2].split(",")):
            key, _, value = (piece.strip() for piece in part.partition("="))
            if not (value.isdecimal() and 1 <= int(value) <= MOST.get(key, 0)):
                raise ConfigError(
                    f"no such option of the encoder tfidf: '{shortened(part)}'",
                    expected=", ".join(
                        f"{name}=1 to {most:,}" for name, most in MOST.items()
                    ),
                    found=f"--encoder {shortened(config.encoder)}",
                )
            options[key] = int(value)
        given = [f"{k}={v}" for k, v in options.items() if v != DEFAULTS[k]]
        self.name, self.revision = f"tfidf:{','.join(given)}".removesuffix(":"), None
        self.num_layers, self.hidden_size = 1, options["features"]
        self.max_length = config.max_length or MOST_WORDS
        self.dtype, self.batching, self.device = (
            "float32",
            "padded",
            resolve_device("cpu"),
        )
        self._options = options
        self._place: dict[str, int] = {}
        self._idf_D: Any = 1.0
        self._fitted: dict[str, Any] = {}

    @classmethod
    def open(cls, config: ExtractConfig) -> TfidfEncoder:
        """Read its options."""
        return cls(config)

    def fit(self, rows: Mapping[str, Rows]) -> None:
        """Take vocabulary and weights from the training split, or else from the first."""
        split = "train" if "train" in rows else next(iter(rows))
        texts_of: Counter[str] = Counter()
        for text in rows[split].inputs:
            texts_of.update(set(self._grams(_words(text)[: self.max_length])))
        if not texts_of:
            raise DataError("no text holds a word", where=rows[split].origin)
        # the most frequent; of equally frequent ones those that come first
        ranked = sorted(texts_of.items(), key=lambda one: (-one[1], one[0]))
        chosen = sorted(ranked[: self._options["features"]])
        count = len(rows[split])
        self._place = {word: place for place, (word, _) in enumerate(chosen)}
        self._idf_D = np.array([math.log((1 + count) / (1 + n)) + 1 for _, n in chosen])
        self.hidden_size = len(chosen)
        told = "\n".join(f"{word} {n}" for word, n in chosen)
        self._fitted = {
            "fitted_on": split,
            "vocabulary": digest_of(f"{count}\n{told}".encode()),
        }

    def identity(self) -> dict[str, Any]:
        """Options, and a digest of what was fitted."""
        return {
            "bag_of_words": self._options | FIXED,
            **self._fitted,
            "unicode": unicodedata.unidata_version,
            "dtype": self.dtype,
            "max_length": self.max_length,
            "pooling": ["mean"],
            "layers": "tf-idf of words",
        }

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """The words of every text; one that has none counts as one token, which is not known.

        Words beyond the ``features`` are left out on purpose: they count as unknown in texts that
        have no other.
        """
        found = [_words(text) for text in rows]
        own = [max(1, len(words[: self.max_length])) for words in found]
        known = [
            any(word in self._place for word in words[: self.max_length])
            for words in found
        ]
        return Inputs(
            own=own,
            unknown=[
                0 if any_known else n for n, any_known in zip(own, known, strict=True)
            ],
            items=[words[: self.max_length] for words in found],
            lengths=[min(max(1, len(words)), self.max_length) for words in found],
            truncated=[len(words) > self.max_length for words in found],
        )

    def load(self) -> None:
        """There are no weights."""

    def encode(self, items: Sequence[list[str]]) -> dict[str, Tensor]:
        """tf-idf of every text, (B, 1, D)."""
        import torch

        x_BD = np.zeros((len(items), self.hidden_size))
        for row, words in enumerate(items):
            for word, count in Counter(self._grams(words)).items():
                if word in self._place:
                    x_BD[row, self._place[word]] = 1 + math.log(count)
        x_BD *= self._idf_D
        norm_B1 = np.linalg.norm(x_BD, axis=1, keepdims=True)
        x_BD /= np.where(norm_B1 > 0, norm_B1, 1)
        return {"mean": torch.from_numpy(x_BD.astype(np.float32)).unsqueeze(1)}

    def _grams(self, words: Sequence[str]) -> Iterator[str]:
        """Words, and sequences of neighbouring ones, joined by a space."""
        for size in range(1, self._options["ngrams"] + 1):
            for start in range(len(words) - size + 1):
                yield " ".join(words[start : start + size])


class _Spaced(dict[int, str]):
    """Characters of words as they are, ideographs apart, all others as spaces."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        word = char if unicodedata.category(char)[0] in "LMN" or char == "_" else " "
        apart = any(first <= code <= last for first, last in IDEOGRAPHS)
        self[code] = f" {word} " if apart else word
        return self[code]


_SPACED = _Spaced()


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return plain.translate(_SPACED).split()
