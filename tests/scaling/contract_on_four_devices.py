"""Run by test_contract.py in a process of its own: prints what each variant's check finds."""

import json

import jax

from models.residuals import BUILT_IN, find
from scaling.contract import ContractError, Subject, runs


def main() -> None:
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    found = {}
    for name in BUILT_IN:
        try:
            found[name] = runs.sharded(Subject(name, next(iter(find(name).examples.values()))))
        except ContractError as error:
            found[name] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
