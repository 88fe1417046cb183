"""The suite for each implementation; Pallas kernels are interpreted."""

import itertools
from collections import Counter
from dataclasses import replace

import derivation
import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import interpret_pallas_call  # races are found nowhere else
from jax.experimental.pallas import tpu as pltpu
from jax.extend.core import jaxpr_as_fun
from suite import (
    EPS,
    DepthAttentionSuite,
    PallasSuite,
    assert_agrees,
    attend,
    equations,
    forward_backward,
    make_case,
)

from kernels.depth_attention import tiling_tpu
from kernels.depth_attention.implementations import BACKENDS


class TestReference(DepthAttentionSuite):
    implementation = "reference"
    test_sources_are_never_stacked = None  # it reads like the equation, and saves what JAX does
    test_backward_keeps_a_few_scalars_a_token_beyond_sources_and_out = None


class TestXla(DepthAttentionSuite):
    implementation = "xla"


class TestPallasTpu(PallasSuite):
    implementation = "pallas_tpu"
    dtypes = ("float32", "bfloat16")

    def loads(self, kernel, T, D):
        """A block is fetched where its index differs from the one of the grid step before."""
        mapping = kernel.params["grid_mapping"]
        loads = []
        for operand in mapping.block_mappings[: mapping.num_inputs]:
            if operand.array_aval.shape == (T, D):
                index = jaxpr_as_fun(operand.index_map_jaxpr)
                steps = np.ndindex(*mapping.grid)
                moves = [i for i, _ in itertools.groupby(tuple(map(int, index(*s))) for s in steps)]
                tile, lanes = (dim.block_size for dim in operand.block_shape)
                assert lanes == D and len(set(moves)) == -(-T // tile) > 1
                loads.append(len(moves) / len(set(moves)))
        return loads


class TestPallasGpu(PallasSuite):
    implementation = "pallas_gpu"

    def loads(self, kernel, T, D):
        """The body of the loop over tokens loads one row of each source."""
        rows = Counter(
            equation.invars[0]
            for equation in equations(kernel.params["jaxpr"])
            if equation.primitive.name == "masked_load"
            and equation.outvars[0].aval.shape == (1, D)
            and equation.outvars[0].aval.dtype == "bfloat16"
        )
        return list(rows.values())


def test_tpu_kernels_are_free_of_races(monkeypatch):
    """Two cores, memory that starts as NaN, reads out of bounds refused, three small tiles."""
    monkeypatch.setattr(tiling_tpu, "ENOUGH", 0)
    params = pltpu.InterpretParams(detect_races=True, num_cores_or_threads=2)
    module = replace(BACKENDS["pallas_tpu"], interpret=params)
    monkeypatch.setitem(BACKENDS, "pallas_tpu", module)
    case = make_case(n=2, tokens=(20,))
    result = forward_backward(attend("pallas_tpu", save_scores=True), case)
    assert_agrees(result, case)
    assert not interpret_pallas_call.races.races_found


def test_derivation_agrees_with_finite_differences():
    case = make_case(n=3, S=2, tokens=(2,), D=8, seed=5)
    arguments = [*derivation.float64(case.values), case.product(), np.float64(case.norm_gain)]
    cotangents = derivation.float64(*case.cotangents)
    gradients = derivation.backward(*arguments, EPS, *cotangents)

    def loss(*arguments):
        results = derivation.forward(*arguments, EPS)
        return sum((x * d).sum() for x, d in zip(results, cotangents, strict=True))

    for which, gradient in enumerate(gradients):
        for at in itertools.islice(np.ndindex(gradient.shape), 0, None, 3):
            step = np.zeros_like(gradient)
            step[at] = 1e-6 * max(1, abs(arguments[which][at]))
            up, down = (
                loss(*arguments[:which], arguments[which] + sign * step, *arguments[which + 1 :])
                for sign in (1, -1)
            )
            assert gradient[at] == pytest.approx((up - down) / (2 * step[at]), rel=1e-5, abs=1e-6)
