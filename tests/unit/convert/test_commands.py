"""mlm-convert import, export and inspect as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlm.cli.convert.main import main
from tests.foreign import BERT, made, saved, words

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")


def test_weights_are_looked_at_imported_verified_and_exported_and_taken_places_are_refused(tmp_path, capsys):
    theirs = words(saved(made("BertModel"), tmp_path / "theirs"), BERT["vocab_size"])
    run_dir, back = tmp_path / "run", tmp_path / "back"

    def typed(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    code, said, _ = typed("inspect", theirs)
    assert (code, "Hugging Face BERT" in said, "model.layernorm=post" in said) == (0, True, True)
    assert "encoder.layer.1.attention.self.key.weight" in said
    assert "layers.1.attention.qkv.weight" in said
    code, said, _ = typed("import", theirs, run_dir, "--pad-vocab-to-multiple", 64)
    assert (code, "vocabulary 90 in 128 rows" in said) == (0, True)
    assert typed("verify", run_dir)[0] == 0
    code, said, _ = typed("export", run_dir, back, "--to", "hf", "--dtype", "fp16")
    assert (code, "BertModel" in said) == (0, True)
    assert {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"} == {
        path.name for path in back.iterdir()
    }
    for arguments in (("import", theirs, run_dir), ("export", run_dir, back, "--to", "hf")):
        code, _, said = typed(*arguments)
        assert (code, "exists, and nothing is ever overwritten" in said) == (2, True)
    code, _, said = typed("inspect", tmp_path)
    assert (code, "is in no format that is known" in said, "config.json" in said) == (2, True, True)
    assert typed("import", tmp_path / "nothing", tmp_path / "new")[0] == 2


def test_a_weight_beyond_fp16_leaves_no_folder(tmp_path, capsys):
    model = made("BertModel")
    model.embeddings.word_embeddings.weight.data[7, 3] = 1e6
    theirs = words(saved(model, tmp_path / "theirs"), BERT["vocab_size"])
    assert main(["import", str(theirs), str(tmp_path / "run")]) == 0
    code = main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "hf", "--dtype", "fp16"])
    said = capsys.readouterr().err
    assert (code, "embeddings.word_embeddings.weight holds 1e+06, beyond what fp16 can" in said) == (1, True)
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", "run"}
