"""What decoders say of rows.

S seeds, N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import NumericsError


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Classes of rows, and how sure the decoders of all seeds are of them."""

    probabilities_NC: NDArray[np.float64]  # noqa: N815 a shape suffix
    """Mean over the seeds of each one's ``softmax(logits)``, (N, C); with temperatures of its
    ``softmax(logits / T)``."""
    agreement_N: NDArray[np.float64]  # noqa: N815
    """Share of the seeds that by themselves predict the same class, (N,)."""
    class_names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        logits_SNC: NDArray[np.float32],
        class_names: Sequence[str],
        *,
        temperatures: Sequence[float] = (),
        places: Sequence[str] = (),
    ) -> Self:
        """Average the seeds.

        Formula: ``p = 1/S sum_s softmax(logits_s / T_s)``; the class is ``argmax p``, of equal ones
        the first.

        Args:
            logits_SNC: of every seed.
            class_names: in the order of the logits.
            temperatures: ``T_s`` of every seed, above 0; empty: 1.
            places: where every row stands, for messages; empty: by their numbers.

        Raises:
            NumericsError: logits that are not finite.
        """
        finite_N = np.isfinite(logits_SNC).all((0, 2))
        if not finite_N.all():
            row = int(finite_N.argmin())
            raise NumericsError(
                "the logits of a row are not finite",
                expected="finite numbers of every seed",
                where=places[row] if places else f"row {row + 1}",
                hint="look at the row; its states are larger than any that was trained on",
            )
        z_SNC = logits_SNC.astype(np.float64)
        z_SNC -= z_SNC.max(-1, keepdims=True)
        if temperatures:
            with np.errstate(over="ignore"):  # what is beyond float64 has a probability of 0
                z_SNC /= np.array(temperatures)[:, None, None]
        exp_SNC = np.exp(z_SNC)
        mean_NC = (exp_SNC / exp_SNC.sum(-1, keepdims=True)).mean(0)
        same_SN = logits_SNC.argmax(-1) == mean_NC.argmax(-1)
        return cls(
            probabilities_NC=mean_NC, agreement_N=same_SN.mean(0), class_names=tuple(class_names)
        )

    @classmethod
    def joined(cls, parts: Sequence[Self], class_names: Sequence[str]) -> Self:
        """Rows of several, one behind the other."""
        none_NC = np.empty((0, len(class_names)))
        return cls(
            probabilities_NC=np.concatenate([none_NC, *(part.probabilities_NC for part in parts)]),
            agreement_N=np.concatenate([none_NC[:, 0], *(part.agreement_N for part in parts)]),
            class_names=tuple(class_names),
        )

    def __len__(self) -> int:
        """N."""
        return len(self.agreement_N)

    @property
    def predicted_N(self) -> NDArray[np.int64]:
        """Number of the most probable class, (N,)."""
        return self.probabilities_NC.argmax(-1)

    @property
    def labels(self) -> list[str]:
        """Its name, of every row."""
        return [self.class_names[number] for number in self.predicted_N.tolist()]

    def top(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The most probable classes, the first of which is the predicted one.

        Args:
            count: K, of which there are no more than classes.

        Returns:
            Their numbers and their probabilities, (N, K) each.
        """
        order_NC = np.argsort(-self.probabilities_NC, axis=-1, kind="stable")[:, :count]
        return order_NC, np.take_along_axis(self.probabilities_NC, order_NC, -1)
