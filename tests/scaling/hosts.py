"""One process of a few that train a cell together, run by test_multihost.py; prints JSON."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from unittest import mock

import jax

from scaling import checkpoint, dynamics, files, metrics, multihost
from scaling.cells import Cell
from scaling.data import prepare
from scaling.errors import UserError
from scaling.ledger import Ledger
from scaling.places import Place
from scaling.run import _digest, run_cell
from scaling.step import Program


def train(cell: Cell, root: Path) -> dict:
    """Losses by step, and of every batch that was put on devices a hash of each row held here."""
    losses, batches, put = [], [], Program.put

    def seen(program, batch):
        hashes = [hashlib.sha1(row.tobytes()).hexdigest() for row in batch["tokens"]]
        batches.append(dict(zip(program.rows.tolist(), hashes, strict=True)))
        return put(program, batch)

    with mock.patch.object(Program, "put", seen):
        corpus = prepare(cell.data.source, cell.data.tokenizer)
        run_cell(cell, Ledger(root), corpus, lambda event: losses.append(event["loss"]))
    return {"losses": losses, "batches": batches}


def digest(cell: Cell, root: Path) -> list:
    """[step, hash of the state] of the newest checkpoint of a cell."""
    like, _ = Program(cell).shapes()
    step, state, _ = checkpoint.restore(Ledger(root).directory(cell) / "checkpoints", like)
    return [step, _digest(state)]


def refusals() -> list[str]:
    """What all processes are told when one of them refuses."""
    me = multihost.is_lead()

    def refuse(at_lead):
        if me == at_lead:
            raise UserError("no")

    said = []
    for check in (
        lambda: multihost.decide("a decision", lambda: refuse(True)),
        lambda: multihost.each("a check", lambda: refuse(False)),
        lambda: multihost.each("a file", lambda: None if me else Path("/nowhere/x").read_text()),
    ):
        try:
            check()
        except UserError as error:
            said.append(str(error))
    return said


def late(process: int) -> str:
    """What process 0 says of process 1, which does not come to a barrier."""
    try:
        if process == 0:
            multihost.barrier("checkpoint of step 500", timeout=1)
    except multihost.HostError as error:
        return str(error)
    return ""


def forbidden(*_):
    raise AssertionError("only process 0 writes")


def main() -> None:
    request = json.loads(sys.argv[1])
    cell = Cell.model_validate(request["cell"])
    place = request["place"] and Place(**request["place"])
    if place:
        multihost.start(place, 240)
    if not multihost.is_lead():
        files.write_text = metrics._continued = dynamics.write_table = forbidden
    found = train(cell, Path(request["root"]))
    found["devices"] = jax.device_count()
    found["digests"] = [digest(cell, Path(root)) for root in request["restore"]]
    if place:
        found["exchanged"] = multihost.exchange("numbers", {"process": place.process})
        found["refusals"] = refusals()
        found["late"] = late(place.process)
    print("FOUND", json.dumps(found), flush=True)
    time.sleep(3 if place else 0)  # neither ends before both have printed
    os._exit(0)


if __name__ == "__main__":
    main()
