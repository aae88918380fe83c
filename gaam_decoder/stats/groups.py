"""Rows that belong together, such as the clips of a speaker: the group is the unit of a test.

Ten clips of a speaker are no ten draws: another test set would have other speakers. The total of
a group then takes the place that a row has elsewhere. The mean is still that of all rows, so that
a group counts by its rows; with ``p_g`` the share of group g of all rows, ``q_g`` what it adds to
the mean beyond its share (the sum of its values minus as many means, divided by N), and
``Q = sum p_g^2``, the variance of the mean is estimated by::

    sum_g q_g^2 / (1 - 2 p_g + Q)

For groups of equal size that is the variance of group means divided by G, and for groups of one
row that of the rows divided by N.

S seeds, N rows, G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_GROUPS = 6
"""With fewer, no sign-flip test over groups can give p < 0.05, whatever they say."""


@dataclass(frozen=True, eq=False, repr=False)
class RowGroups:
    """Which rows belong together; at least one group has two rows.

    Source: the estimate is CR2 of a mean under the working model that what the rows of a group
        share is all that varies: unbiased then, and otherwise too large, never too small. Bell and
        McCaffrey 2002, "Bias reduction in standard errors for linear regression with multi-stage
        samples"; Pustejovsky and Tipton 2018, "Small-sample methods for cluster-robust variance
        estimation and hypothesis testing in fixed effects models".
    """

    group_N: NDArray[np.int64]  # number of the group of every row, from 0 without gaps

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.rows_G)

    @cached_property
    def rows_G(self) -> NDArray[np.int64]:
        """Rows of every group."""
        return np.bincount(self.group_N)

    @cached_property
    def correction_G(self) -> NDArray[np.float64]:
        """By what the square of every ``q_g`` is multiplied in the variance of the mean."""
        share_G = self.rows_G / self.rows_G.sum()
        return 1 / (1 - 2 * share_G + np.sum(share_G**2))

    @cached_property
    def freedom(self) -> float:
        """Degrees of freedom of that variance: G - 1 where groups have the same size.

        Else the effective number of groups, ``1 / Q``, minus 1, and 1 at least: as many groups of
        one size have a mean of that variance. Satterthwaite's number under independent rows is
        nearly the same, and slightly larger.

        Source: Kish 1965, "Survey sampling", section 11.7; as degrees of freedom: Carter, Schnepel
            and Steigerwald 2017, "Asymptotic behavior of a t-test robust to cluster heterogeneity".
        """
        share_G = self.rows_G / self.rows_G.sum()
        return max(1.0, 1 / float(np.sum(share_G**2)) - 1)

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of all groups, one group after the other, and where each begins."""
        starts_G = np.concatenate([[0], np.cumsum(self.rows_G)[:-1]])
        return np.argsort(self.group_N, kind="stable"), starts_G

    def totals(self, value_SN: NDArray[Any]) -> NDArray[Any]:
        """Sum over the rows of every group, (S, G); whole numbers of whole ones."""
        kind = np.int64 if value_SN.dtype.kind in "biu" else np.float64
        order_N, starts_G = self._sorted
        total_SG: NDArray[Any] = np.add.reduceat(
            value_SN[:, order_N], starts_G, 1, dtype=kind
        )
        return total_SG

    def beyond_share(self, value_SN: NDArray[Any]) -> NDArray[np.float64]:
        """What every group adds to the mean of a seed beyond its share of the rows, (S, G)."""
        mean_S = value_SN.mean(1, dtype=np.float64)
        return (self.totals(value_SN) - np.outer(mean_S, self.rows_G)) / value_SN.shape[
            1
        ]


def row_groups(names: Sequence[Any] | NDArray[Any] | None) -> RowGroups | None:
    """Groups of the rows that have the same name; None where every row has a name of its own."""
    if names is None:
        return None
    distinct, group_N = np.unique(np.asarray(names), return_inverse=True)
    if len(distinct) == len(group_N):
        return None
    return RowGroups(group_N.astype(np.int64))


def joined(relations: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Rows that any of several relations puts together, over others too: their group, (N,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    num_rows, num_nodes = len(relations[0]), len(relations[0])
    rows, nodes = [], []
    for group_N in relations:  # a node for each row, and one for each group
        rows.append(np.arange(num_rows))
        nodes.append(num_nodes + group_N)
        num_nodes += int(group_N.max()) + 1
    ends = np.concatenate(rows), np.concatenate(nodes)
    links = coo_array(
        (np.ones(len(ends[0]), np.int8), ends), shape=(num_nodes, num_nodes)
    )
    component: NDArray[np.int64] = connected_components(links, directed=False)[1][
        :num_rows
    ]
    return component.astype(np.int64)
