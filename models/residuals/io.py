"""Memory traffic of residual connections as arXiv 2603.15031 counts it in its Table 1.

Elements that the mechanism alone reads and writes per token and sublayer, averaged over the depth;
what a sublayer itself moves is left out. Keys and values count as two reads of a source, though a
fused kernel makes one; what this package's kernels move is measured in kernels/README.md.
"""

from typing import NamedTuple


class Step(NamedTuple):
    """One row of the table."""

    name: str
    read: float
    write: float


def total(steps: list[Step]) -> float:
    """Elements read and written per token and sublayer."""
    return sum(step.read + step.write for step in steps)


def standard(d: float) -> list[Step]:
    """x <- x + f(x): 3d."""
    return [Step("merge", 2 * d, d)]


def norm(d: float) -> list[Step]:
    """A norm that PreNorm does not have: 2d."""
    return [Step("norm", d, d)]


def low_rank(d: float, r: float) -> list[Step]:
    """x W_down W_up through r dimensions: 2(d + r)."""
    return [Step("down", d, r), Step("up", r, d)]


def mix(d: float, n: int, outputs: int = 1) -> list[Step]:
    """Weighted sums of the same n arrays: (n + outputs)d."""
    return [Step("mix", n * d, outputs * d)]


def hyper_connections(d: float, m: float) -> list[Step]:
    """(Manifold-constrained) hyper-connections with m streams: (8m + 2)d + 2m^2 + 4m."""
    return [
        Step("compute alpha, beta, A", m * d, m**2 + 2 * m),
        Step("apply alpha", m * d + m, d),
        Step("apply beta", d + m, m * d),
        Step("apply A", m * d + m**2, m * d),
        Step("merge", 2 * m * d, m * d),
    ]


def identity_connections(d: float, m: float) -> list[Step]:
    """Hyper-connections that leave their m streams unmixed: (6m + 2)d + 4m. No row of Table 1."""
    return [
        Step("compute alpha, beta", m * d, 2 * m),
        Step("apply alpha", m * d + m, d),
        Step("apply beta", d + m, m * d),
        Step("merge", 2 * m * d, m * d),
    ]


def full_attention(d: float, S: float, N: float) -> list[Step]:
    """Full AttnRes in N groups of S sublayers, which are a schedule and no approximation: (S + N)d.

    Phase one reads the outputs before a group once for all its S queries, phase two the outputs
    of the group itself (Alg. 1, appendix B).
    """
    return [
        Step("phase one, amortised", (N - 1) * d, d),
        Step("phase two", (S - 1) * d, d),
    ]


def block_attention(d: float, S: float, N: float) -> list[Step]:
    """Block AttnRes with N blocks of S sublayers: (N/S + 5)d."""
    return [Step("phase one, amortised", N / S * d, d), Step("phase two", 3 * d, d)]
