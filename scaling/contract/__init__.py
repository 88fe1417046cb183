"""What every residual connection must fulfil, built in or not, as checks that run in seconds.

A check takes a `Subject` and returns what it found in a few words, or raises `ContractError` with
what is wrong, or `NotApplicableError`.
"""

from scaling.contract import checks, runs
from scaling.contract.checks import ContractError, NotApplicableError
from scaling.contract.subject import Subject

CHECKS = {
    "causal": checks.causal,
    "PreNorm at init": checks.prenorm_at_init,
    "parameters": checks.parameters,
    "FLOPs": checks.flops,
    "gradients": checks.gradients,
    "effect": checks.effect,
    "separate streams": checks.separate,
    "readings": checks.readings,
    "bfloat16": checks.bfloat16,
    "scan = unrolled": checks.unrolled,
    "saved activations": checks.saved_activations,
    "sharded = whole": runs.sharded,
    "training": runs.training,
}

__all__ = ["CHECKS", "ContractError", "NotApplicableError", "Subject"]
