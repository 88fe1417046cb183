"""Every built-in residual connection, in each of its examples, fulfils the contract."""

import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from models.residuals import BUILT_IN, find
from scaling.contract import CHECKS, NotApplicableError, Subject, runs

HERE = Path(__file__).parent
CASES = {
    f"{name}, {label}" if label else name: (name, options)
    for name in BUILT_IN
    for label, options in find(name).examples.items()
}
FIRST = {next(case for case, (n, _) in CASES.items() if n == name) for name in BUILT_IN}
DERIVATIONS = ("single_stream", "streams", "key_values", "dense", "attnres")
ON_FOUR_DEVICES = "sharded = whole"  # which this process does not have
# Of these, which compile more, the first example of a variant stands for all.
ONCE = ("bfloat16", "scan = unrolled", "training")


@functools.lru_cache(maxsize=2)
def subject(case: str) -> Subject:
    """Shared by the clauses of a case, which come one after the other."""
    return Subject(*CASES[case])


@functools.cache
def derivation(name: str):
    """The float64 derivation of a variant."""
    sys.path.insert(0, str(HERE.parent / "models"))
    modules = [importlib.import_module(f"derivations.{module}") for module in DERIVATIONS]
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def holds(case: str, clause: str) -> None:
    name, _ = CASES[case]
    with jax.numpy_dtype_promotion("strict"):
        try:
            if clause == "derivation":
                runs.derivation(subject(case), derivation(name))
            else:
                CHECKS[clause](subject(case))
        except NotApplicableError as reason:
            pytest.skip(str(reason))


def contract_of(family: str) -> type:
    """One class a family, so that they can run side by side."""
    pairs = [
        pytest.param(case, clause, marks=[pytest.mark.slow] * (clause == "training"))
        for case, (name, _) in CASES.items()
        if find(name).family == family
        for clause in [*CHECKS, "derivation"]
        if clause != ON_FOUR_DEVICES and (clause not in ONCE or case in FIRST)
    ]

    class Contract:
        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        def forget_programs(cls):
            yield
            jax.clear_caches()  # hundreds of them, which are gigabytes

        @pytest.mark.parametrize(("case", "clause"), pairs)
        def test_holds(self, case, clause):
            holds(case, clause)

    return Contract


for family in sorted({find(name).family for name in BUILT_IN}):
    globals()[f"Test{family.title().replace(' ', '')}"] = contract_of(family)


@pytest.mark.parametrize(
    ("name", "options"), [("attnres_block", {"n_blocks": 2}), ("value_residual", {})]
)
def test_what_two_layers_do_not_scan_is_compared_in_four(name, options):
    subject = Subject(name, options)
    assert not subject.is_scanned(subject.shallow())
    assert CHECKS["scan = unrolled"](subject).startswith("deviate by")


@pytest.fixture(scope="module")
def on_four_devices() -> dict[str, str]:
    """What the clause that needs several devices finds, in a process that has them."""
    done = subprocess.run(
        [sys.executable, HERE / "contract_on_four_devices.py"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_sharded_equals_whole(on_four_devices, name):
    assert on_four_devices[name].startswith("deviates by")
