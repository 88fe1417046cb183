"""Any other TFDS data set, made here and small; and nothing that needs TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from scaling.data import prepare
from scaling.data.cache import cache_root
from scaling.errors import UserError

TEXT = tfds.features.Text()


class TinyTexts(tfds.core.GeneratorBasedBuilder):
    """Examples given by the test."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = Path(__file__)

    def __init__(self, features, splits, **kwargs):
        self.features, self.given = features, splits
        super().__init__(**kwargs)

    def _info(self):
        features = tfds.features.FeaturesDict(self.features)
        return tfds.core.DatasetInfo(builder=self, description="Tiny.", features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(rows) for split, rows in self.given.items()}

    def _generate_examples(self, rows):
        yield from enumerate(rows)


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds a tiny set into a TFDS folder that $TFDS_DATA_DIR names."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "sets"))

    def build(features, splits, config=None):
        config = tfds.core.BuilderConfig(name=config) if config else None
        builder = TinyTexts(
            features, splits, config=config, data_dir=tmp_path / "sets", file_format="array_record"
        )
        builder.download_and_prepare()

    return build


def rows(prefix, n=60):
    return [{"text": f"{prefix} document {i}"} for i in range(n)]


@pytest.mark.parametrize("name", ["validation", "test"])
def test_own_held_out_split_is_kept(build, tmp_path, name):
    build({"text": TEXT}, {"train": rows("seen"), name: rows("held", 7)})
    corpus = prepare("tfds:tiny_texts", "bytes", tmp_path)
    assert corpus.stats["train"]["documents"] == 60
    assert corpus.stats["validation"]["documents"] == 7
    assert corpus.decode(corpus.validation).count("held") == 7
    assert "held" not in corpus.decode(corpus.train)


def test_train_only_is_split_by_content(build, tmp_path):
    build({"text": TEXT}, {"train": rows("seen") + rows("seen")})
    corpus = prepare("tfds:tiny_texts", "bytes", tmp_path)
    train, validation = corpus.stats["train"], corpus.stats["validation"]
    assert train["documents"] + validation["documents"] == 120
    assert validation["documents"] % 2 == 0  # each document with its copy


def test_text_feature(build, tmp_path):
    features = {"title": TEXT, "body": TEXT, "label": tfds.features.ClassLabel(num_classes=2)}
    row = [{"title": f"t{i}", "body": f"body {i}", "label": 0} for i in range(40)]
    build(features, {"train": row})
    with pytest.raises(UserError, match=r"2 text features.*body \(Text\), label \(ClassLabel\)"):
        prepare("tfds:tiny_texts", "bytes", tmp_path)
    with pytest.raises(UserError, match="no text feature 'bodi': did you mean 'body'"):
        prepare("tfds:tiny_texts#bodi", "bytes", tmp_path)
    corpus = prepare("tfds:tiny_texts#body", "bytes", tmp_path)
    assert corpus.decode(corpus.train).startswith("body")
    titles = prepare("tfds:tiny_texts#title", "bytes", tmp_path)
    assert titles.fingerprint != corpus.fingerprint


def test_configs(build, tmp_path):
    build({"text": TEXT}, {"train": rows("german")}, "de")
    corpus = prepare("tfds:tiny_texts", "bytes", tmp_path)
    assert prepare("tfds:tiny_texts/de:1.0.0", "bytes", tmp_path).directory == corpus.directory
    build({"text": TEXT}, {"train": rows("french")}, "fr")
    with pytest.raises(UserError, match="tfds:tiny_texts/de, tfds:tiny_texts/fr"):
        prepare("tfds:tiny_texts", "bytes", tmp_path)
    french = prepare("tfds:tiny_texts/fr", "bytes", tmp_path)
    assert french.decode(french.train).startswith("french")


def test_refusals(build, tmp_path):
    build({"text": TEXT}, {"test": rows("only")})
    with pytest.raises(UserError, match="no train split; it has test"):
        prepare("tfds:tiny_texts", "bytes", tmp_path)
    with pytest.raises(UserError, match=r"neither in .* nor known to TFDS"):
        prepare("tfds:no_such_set_anywhere", "bytes", tmp_path)


def test_stored_as_tfrecord(build, tmp_path):
    build({"text": TEXT}, {"train": rows("seen")})
    info = next((tmp_path / "sets").rglob("dataset_info.json"))
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(UserError, match="needs TensorFlow to read"):
        prepare("tfds:tiny_texts", "bytes", tmp_path)


FULL_USE = """
import sys
import scaling.data as data
assert not {"jax", "grain", "tensorflow_datasets"} & set(sys.modules), "import is not light"
for tokenizer in ("bytes", "bpe:260"):
    corpus = data.prepare("tfds:stdlib_sources", tokenizer, sys.argv[1])
    next(data.train_batches(corpus, seq_len=8, batch_size=2, seed=0))
    data.validation_batches(corpus, seq_len=8, batch_size=2, n_tokens=16)
assert "tensorflow_datasets" in sys.modules
print("tensorflow" in sys.modules)
"""
SMALL_STDLIB = """
import pathlib
from scaling.data.stdlib_sources import listing
listing.stdlib_dir, listing.MIN_BYTES = lambda: pathlib.Path({root!r}), 1000
"""


def test_full_use_imports_no_tensorflow(small_stdlib, tmp_path):
    script = SMALL_STDLIB.format(root=str(small_stdlib[0])) + FULL_USE
    environment = {k: v for k, v in os.environ.items() if k != "TFDS_DATA_DIR"}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert "Downloading and preparing" not in done.stderr + done.stdout
    assert not done.stderr


def test_loading_a_prepared_corpus_imports_no_tfds(small_stdlib, tmp_path):
    prepare("tfds:stdlib_sources", "bytes", tmp_path)
    script = SMALL_STDLIB.format(root=str(small_stdlib[0])) + (
        "import sys, scaling.data as data\n"
        "data.prepare('tfds:stdlib_sources', 'bytes', sys.argv[1])\n"
        "print({'tensorflow_datasets', 'jax', 'grain'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_default_cache_is_in_the_home_folder(monkeypatch):
    monkeypatch.delenv("SCALING_DATA_DIR", raising=False)
    assert cache_root() == Path.home() / ".cache" / "residual-scaling-laws"
