"""A bag of words: what a text says without any encoder.

B batch, D features.
"""

from __future__ import annotations

import dataclasses
import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder
from gaam_cache.encoders._inputs import Inputs
from gaam_cache.encoders._words import grams, words_of
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.messages import shortened
from gaam_cache.store.digest import digest_of

if TYPE_CHECKING:
    from torch import Tensor

    from gaam_cache.sources._base import Rows

MOST_WORDS = 1_000_000
"""Of a text, where ``--max-length`` does not say."""
MOST_FEATURES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class _Options:
    """``tfidf:features=4096,ngrams=1,sublinear=true,hashed=false``."""

    features: int = 4096
    """D, the words of the most texts; of the hash, exactly so many."""
    ngrams: int = 1
    """Longest sequence of neighbouring words that counts as one more word."""
    sublinear: bool = True
    """A word that occurs n times counts 1 + ln n, not n."""
    hashed: bool = False
    """A feature is a hash of the word and nothing is fitted: no vocabulary, and no idf."""

    def spelled(self) -> str:
        """As ``--encoder`` takes it; what is at its default is left out."""
        differ = [
            f"{one.name}={str(getattr(self, one.name)).lower()}"
            for one in dataclasses.fields(self)
            if getattr(self, one.name) != one.default
        ]
        return "tfidf" + (f":{','.join(differ)}" if differ else "")


class TfidfEncoder(Encoder):
    """tf-idf vectors of the words of a text, as a cache of one layer.

    Formula: ``x_w = (1 + ln n_w) (ln((1 + N) / (1 + N_w)) + 1)``, divided by the norm of x; n_w how
    often the word w is in the text, N_w in how many of the N texts of the training split it is.

    Vocabulary and N_w come from the training split alone (where there is none, from the first), so
    that no row that is tested has a say. Words are runs of letters, marks and digits of any script
    after NFKC and case folding, and single characters of scripts that do not part words. A text
    without any word that is known has the state zero.

    Source: the weights of scikit-learn's TfidfVectorizer with sublinear_tf.
    """

    called: ClassVar[str | None] = "text"

    def __init__(self, options: _Options, config: ExtractConfig) -> None:
        """Use ``TfidfEncoder.open``."""
        from gaam_cache import devices

        self.name, self.revision = options.spelled(), None
        self.num_layers, self.hidden_size = 1, options.features
        self.max_length = config.max_length or MOST_WORDS
        self.dtype, self.batching = "float32", "padded"
        self.device = devices.resolve_device("cpu")
        self._options = options
        self._place: dict[str, int] = {}
        self._idf_D: Any = None
        self._fitted: dict[str, Any] = {}

    @classmethod
    def open(cls, config: ExtractConfig) -> TfidfEncoder:
        """Read the options.

        Raises:
            ConfigError: an unknown one, or a setting of the extraction that plays no part.
        """
        defaults = {one.name: one.default for one in dataclasses.fields(ExtractConfig)}
        idle = ("revision", "untrained_encoder", "device_map", "pool", "dtype")
        for name in idle:
            value = getattr(config, name)
            if value != defaults[name] and not (name == "dtype" and value == "auto"):
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(
                    f"{option} plays no part with --encoder tfidf",
                    expected="a bag of words has no weights, one state a text, and is float32",
                    found=f"{option} {','.join(value) if isinstance(value, tuple) else value}",
                    hint=f"leave {option} out",
                )
        return cls(_parse(config.encoder), config)

    def fit(self, rows: Mapping[str, Rows]) -> None:
        """Take vocabulary and weights from the training split, or else from the first.

        Raises:
            DataError: no word in any of its texts.
        """
        if self._options.hashed:
            return
        split = "train" if "train" in rows else next(iter(rows))
        texts_of: Counter[str] = Counter()
        for text in rows[split].inputs:
            texts_of.update(set(self._words(text)))
        if not texts_of:
            raise DataError(
                "no text holds a word",
                expected="letters or digits in the texts of the training split",
                where=rows[split].origin,
            )
        # the most frequent; of equally frequent ones those that come first
        ranked = sorted(texts_of.items(), key=lambda one: (-one[1], one[0]))
        chosen = sorted(ranked[: self._options.features])
        count = len(rows[split])
        self._place = {word: place for place, (word, _) in enumerate(chosen)}
        self._idf_D = np.array([math.log((1 + count) / (1 + n)) + 1 for _, n in chosen])
        self.hidden_size = len(chosen)
        told = "\n".join(f"{word} {n}" for word, n in chosen)
        self._fitted = {"fitted_on": split, "vocabulary": digest_of(f"{count}\n{told}".encode())}

    def identity(self) -> dict[str, Any]:
        """Options, and a digest of what was fitted."""
        return {
            "bag_of_words": dataclasses.asdict(self._options),
            **self._fitted,
            "unicode": unicodedata.unidata_version,
            "dtype": self.dtype,
            "max_length": self.max_length,
            "pooling": ["mean"],
            "layers": "words, hashed" if self._options.hashed else "tf-idf of words",
        }

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """The words of every text; one that has none counts as one token, which is not known."""
        found = [words_of(text) for text in rows]
        cut = [words[: self.max_length] for words in found]
        return Inputs(
            items=cut,
            lengths=[max(1, len(words)) for words in cut],
            truncated=[len(words) > self.max_length for words in found],
        )

    def refuse_empty(self, row: str, where: str) -> DataError:
        """Nothing is refused: without words the state is zero."""
        raise AssertionError("every text has a length", row, where)

    def load(self) -> None:
        """There are no weights."""

    def encode(self, items: Sequence[list[str]]) -> dict[str, Tensor]:
        """tf-idf of every text, (B, 1, D)."""
        import torch

        x_BD = np.zeros((len(items), self.hidden_size))
        for row, words in enumerate(items):
            for word, count in Counter(grams(words, self._options.ngrams)).items():
                place, sign = self._feature(word)
                if place is not None:
                    x_BD[row, place] += sign * self._weight(count)
        if self._idf_D is not None:
            x_BD *= self._idf_D
        norm_B = np.linalg.norm(x_BD, axis=1, keepdims=True)
        x_BD /= np.where(norm_B > 0, norm_B, 1)
        return {"mean": torch.from_numpy(x_BD.astype(np.float32)).unsqueeze(1)}

    def _weight(self, count: int) -> float:
        return 1 + math.log(count) if self._options.sublinear else float(count)

    def _feature(self, word: str) -> tuple[int | None, int]:
        """Place of a word and its sign, which lets words that share a place cancel, not add."""
        if not self._options.hashed:
            return self._place.get(word), 1
        number = zlib.crc32(word.encode())
        return (number >> 1) % self.hidden_size, 1 - 2 * (number & 1)

    def _words(self, text: str) -> Iterator[str]:
        """Words and sequences of them, of a text as it is encoded."""
        return grams(words_of(text)[: self.max_length], self._options.ngrams)


def _parse(text: str) -> _Options:
    """Options behind the colon of ``tfidf:key=value,...``."""
    known = {one.name: one.default for one in dataclasses.fields(_Options)}
    given: dict[str, Any] = {}
    for part in filter(None, text.partition(":")[2].split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in known or key in given:
            raise ConfigError(
                f"'{shortened(key)}' is given twice"
                if key in given
                else f"unknown option '{shortened(key)}' of the encoder tfidf",
                expected=", ".join(f"{name}=..." for name in known),
                found=f"--encoder {shortened(text)}",
            )
        if isinstance(known[key], bool):
            fits, given[key], expected = (
                value in ("true", "false"),
                value == "true",
                "true or false",
            )
        else:
            most = {"features": MOST_FEATURES, "ngrams": 5}[key]
            fits = re.fullmatch("[0-9]{1,8}", value) is not None and 1 <= int(value) <= most
            given[key], expected = int(value) if fits else 0, f"1 to {most:,}"
        if not fits:
            raise ConfigError(
                f"bad value for --encoder tfidf:{key}",
                expected=expected,
                found=f"'{shortened(value)}'",
            )
    return _Options(**given)
