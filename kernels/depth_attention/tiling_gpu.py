"""How many queries and tokens a program of a GPU kernel takes, and with how many warps."""

from typing import NamedTuple

from jax.experimental import pallas as pl

REGISTERS = 65_536 * 7 // 8  # of a program; the rest is for addresses and temporaries
PER_THREAD = 160  # of the 255 a thread can name


class Plan(NamedTuple):
    """How one pass is cut up."""

    width: int  # D padded to a power of two
    group: int  # G, queries in a tile; 0 if not even one fits
    groups: int  # tiles that cover all queries
    tokens: int  # of a program
    programs: int
    warps: int

    @classmethod
    def forward(cls, S: int, N: int, D: int) -> "Plan":
        """Holds queries and sums of a group, a source and the next one."""
        return cls._of(S, N, D, rows_a_query=2, other_rows=2, warps_in_all=8192)

    @classmethod
    def backward(cls, S: int, N: int, D: int) -> "Plan":
        """Holds queries, d_out and dq of a group, a source, its gradient and the next source."""
        # Fewer and longer programs than forward: each writes a dq of its own.
        return cls._of(S, N, D, rows_a_query=3, other_rows=3, warps_in_all=2048)

    @classmethod
    def _of(cls, S, N, D, *, rows_a_query, other_rows, warps_in_all):
        width, group = pl.next_power_of_2(D), pl.next_power_of_2(S)
        while group and (rows_a_query * group + other_rows) * width > REGISTERS:
            group //= 2
        held = (rows_a_query * group + other_rows) * width
        warps = max(width // 512, pl.cdiv(held, 32 * PER_THREAD))
        warps = min(16, pl.next_power_of_2(warps))
        tokens = pl.cdiv(N, warps_in_all // warps)
        return cls(width, group, -(-S // max(group, 1)), tokens, pl.cdiv(N, tokens), warps)
