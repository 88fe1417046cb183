"""How many tokens a TPU kernel holds at a time, and in how many buffers."""

from typing import NamedTuple

MIB = 2**20
# A TPU has at least 64 MiB of VMEM a core from v5e on, and the compiler keeps a little of it.
VMEM = 60 * MIB
# Beyond this, larger tiles only lengthen the first load and the last store, which nothing hides.
ENOUGH = 20 * MIB


class Tiling(NamedTuple):
    """Block sizes of one kernel; `forward` and `backward` choose them for n sources and S reads."""

    tile: int  # tokens of a grid step
    rows: int  # tokens of an inner iteration
    lanes: int  # part of D of an inner iteration, a multiple of 128
    buffers_in: int  # copies of each source's block: two overlap loads with arithmetic
    buffers_out: int  # and of each source gradient's block
    vmem: int  # bytes in all

    @classmethod
    def forward(cls, n: int, S: int, N: int, D: int, itemsize: int, *, normed=False) -> "Tiling":
        return _choose(n, S, N, D, itemsize, reads=S * (1 + normed), gradients=0)

    @classmethod
    def backward(cls, n: int, S: int, N: int, D: int, itemsize: int) -> "Tiling":
        return _choose(n, S, N, D, itemsize, reads=S, gradients=n)


def unfit(n: int, S: int, D: int, itemsize: int) -> str | None:
    """A sentence saying that n sources and S reads of width D do not fit in VMEM, or None."""
    need = max(
        Tiling.forward(n, S, 1, D, itemsize, normed=True).vmem,
        Tiling.backward(n, S, 1, D, itemsize).vmem,
    )
    if need <= VMEM:
        return None
    return (
        f"{n} sources and {S} reads of width {D} need {need // MIB} MiB of VMEM for the smallest "
        f"tile, and {VMEM // MIB} MiB are sure to be there."
    )


def _choose(n, S, N, D, itemsize, *, reads, gradients) -> Tiling:
    parts = _cdiv(D, 1024)  # fewer lanes at a time cost cycles, more of them registers
    lanes = _round_up(_cdiv(D, parts), 128)
    width = _round_up(D, 128)

    def tiling(tile, rows, buffers_in, buffers_out):
        blocks = buffers_in * n + buffers_out * gradients + 2 * reads
        scalars = 4 + _cdiv(S * n, 128)
        vmem = tile * (blocks * width * itemsize + 2 * scalars * 128 * 4)
        vmem += 4 * (4 * _round_up(S, 8) * width + S * rows * (width + 4 * lanes)) + 4 * MIB
        return Tiling(tile, rows, lanes, buffers_in, buffers_out, vmem)

    packed = 32 // itemsize  # tokens of one register of sources
    for rows, *buffers in ((packed, 2, 2), (8, 2, 2), (8, 2, 1), (8, 1, 1)):
        chosen = tiling(rows, rows, *buffers)
        if chosen.vmem <= VMEM:
            break
    while chosen.tile < min(N, 256):
        larger = tiling(2 * chosen.tile, rows, *buffers)
        if larger.vmem > ENOUGH:
            break
        chosen = larger
    return chosen


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _round_up(a: int, multiple: int) -> int:
    return _cdiv(a, multiple) * multiple
