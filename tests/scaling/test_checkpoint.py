"""Checkpoints: bitwise, never torn, never silently wrong."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling import checkpoint


@pytest.fixture
def state():
    key = jax.random.key(0)
    return {"params": {"a": jax.random.normal(key, (5, 3))}, "opt_state": (jnp.zeros(2), ()),
            "step": jnp.int32(4)}  # fmt: skip


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_round_trip_is_bitwise(tmp_path, state):
    checkpoint.save(tmp_path, 4, state, {"seconds": 1.5})
    step, restored, extra = checkpoint.restore(tmp_path, jax.tree.map(jnp.zeros_like, state))
    assert (step, extra) == (4, {"seconds": 1.5})
    same(restored, state)
    assert jax.tree.structure(restored) == jax.tree.structure(state)


def test_the_manifest_says_what_arrays_there_are(tmp_path, state):
    checkpoint.save(tmp_path, 4, state, {})
    leaves = json.loads((tmp_path / "4.json").read_text())["leaves"]
    assert leaves == {"params/a": "float32[5, 3]", "opt_state/0": "float32[2]", "step": "int32[]"}


def test_other_arrays_are_refused_by_name(tmp_path, state):
    checkpoint.save(tmp_path, 4, state, {})
    wanted = {**state, "params": {"a": jnp.zeros((5, 4)), "b": jnp.zeros(1)},
              "opt_state": (jnp.zeros(2, jnp.bfloat16), ())}  # fmt: skip
    with pytest.raises(checkpoint.MismatchError) as refusal:
        checkpoint.restore(tmp_path, wanted)
    assert str(refusal.value) == (
        "the checkpoint of step 4 is of another model: "
        "opt_state/0 is float32[2] there and bfloat16[2] here; "
        "params/a is float32[5, 3] there and float32[5, 4] here; "
        "params/b is absent there and float32[1] here"
    )


def test_the_first_ten_of_many_different_arrays_are_listed(tmp_path):
    many = {f"{i:02}": jnp.zeros(2) for i in range(13)}
    checkpoint.save(tmp_path, 1, many, {})
    with pytest.raises(checkpoint.MismatchError) as refusal:
        checkpoint.restore(tmp_path, {name: jnp.zeros(3) for name in many})
    assert str(refusal.value).endswith("; 09 is float32[2] there and float32[3] here; and 3 more")
    assert "10 is" not in str(refusal.value)


def test_a_manifest_without_a_list_of_arrays_is_read(tmp_path, state):
    checkpoint.save(tmp_path, 4, state, {})
    path = tmp_path / "4.json"
    manifest = json.loads(path.read_text())
    del manifest["leaves"]
    path.write_text(json.dumps(manifest))
    same(checkpoint.restore(tmp_path, state)[1], state)


def test_nothing_to_restore(tmp_path, state):
    assert checkpoint.restore(tmp_path / "none", state) is None


def test_the_newest_two_are_kept(tmp_path, state):
    for step in (10, 20, 100):
        checkpoint.save(tmp_path, step, state, {})
    assert sorted(checkpoint.steps(tmp_path)) == [20, 100]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["100", "100.json", "20", "20.json"]


def largest_file(folder):
    return max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


@pytest.mark.parametrize(
    "damage", ["flip", "truncate", "delete", "no manifest", "torn manifest", "odd"]
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, state, damage):
    older = {**state, "step": jnp.int32(3)}
    checkpoint.save(tmp_path, 3, older, {})
    checkpoint.save(tmp_path, 4, state, {})
    victim, manifest = largest_file(tmp_path / "4"), tmp_path / "4.json"
    content = victim.read_bytes()
    if damage == "flip":
        victim.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "truncate":
        victim.write_bytes(content[:-7])
    elif damage == "delete":
        victim.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "odd":
        manifest.write_text("[]")
    else:
        manifest.write_text(manifest.read_text()[:20])
    step, restored, _ = checkpoint.restore(tmp_path, state)
    assert step == 3
    same(restored, older)
    checkpoint.save(tmp_path, 4, state, {})  # the step can be saved again
    assert checkpoint.restore(tmp_path, state)[0] == 4


def test_what_a_kill_while_pruning_leaves_is_removed(tmp_path, state):
    for step in (10, 20):
        checkpoint.save(tmp_path, step, state, {})
    (tmp_path / "10.json").unlink()
    checkpoint.save(tmp_path, 30, state, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["20", "20.json", "30", "30.json"]


@pytest.mark.parametrize("moment", ["_sums", "write_json"])
def test_a_kill_between_commit_and_manifest_falls_back(tmp_path, state, monkeypatch, moment):
    checkpoint.save(tmp_path, 3, {**state, "step": jnp.int32(3)}, {})

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, moment, killed)
        checkpoint.save(tmp_path, 4, state, {})
    assert (tmp_path / "4").is_dir()
    assert checkpoint.restore(tmp_path, state)[0] == 3
    assert not (tmp_path / "4").exists()


def test_a_save_cut_short_counts_for_nothing(tmp_path, state):
    (tmp_path / "7.orbax-checkpoint-tmp-1").mkdir(parents=True)
    (tmp_path / "8").mkdir()  # orbax alone would take an empty numeric folder for the latest step
    assert checkpoint.restore(tmp_path, state) is None
    assert list(tmp_path.iterdir()) == []
