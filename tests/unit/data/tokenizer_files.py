"""Small tokenizer files of every kind, made by the libraries that own the formats, with traps in them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from tests.unit.data.tokenizer_texts import CONTROLS, JAPANESE

# The pattern of newer byte-level tokenizers, as published with cl100k.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_all(folder: Path, text: str) -> dict[str, Path]:
    """One file (or folder) by name of kind; text: English to train on."""
    return {
        "sentencepiece": sentencepiece_model(folder / "unigram.model", text, "unigram"),
        "sentencepiece_bpe": sentencepiece_model(folder / "bpe.model", text, "bpe"),
        "gpt2_pair": gpt2_pair(folder / "pair", text),
        "wordpiece": wordpiece(folder / "vocab.txt", text),
        "wordpiece_cased": wordpiece(folder / "cased.txt", text, cased=True),
        "hf_bytes": hf_bytes(folder / "bytes.json", text),
        "hf_unigram": hf_unigram(folder / "unigram.json", text),
    }


def sentencepiece_model(path: Path, text: str, model_type: str, **options: Any) -> Path:
    """Exact, with control pieces, and with user-defined ones that read like control tokens."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((text + JAPANESE).split("\n")),
        model_writer=model,
        minloglevel=2,
        **{
            "vocab_size": 900,
            "model_type": model_type,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "add_dummy_prefix": False,
            "byte_fallback": True,
            "user_defined_symbols": ["\n", "<mask>", "[SEP]", "<tool_call>", "    "],
            "control_symbols": ["[CLS]", "<pad>"],
            **options,
        },
    )
    path.write_bytes(model.getvalue())
    return path


def byte_bpe(text: str) -> dict[str, Any]:
    """The model of a byte-level BPE, as tokenizer.json holds it."""
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline.train_from_iterator(
        [text], BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    return json.loads(pipeline.to_str())["model"]


def gpt2_pair(folder: Path, text: str) -> Path:
    """vocab.json with gaps in its ids, </s> as the end, and a greatest id beyond its length."""
    model = byte_bpe(text)
    folder.mkdir()
    vocab = model["vocab"] | {"<s>": 700, "</s>": 702, "<unk>": 703}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    return folder


def wordpiece(path: Path, text: str, cased: bool = False) -> Path:
    words = sorted(set(text if cased else text.lower()) - set(" \n") | set("[]<>|/_日本語のx0"))
    common = ["the", "and", "thou", "king", "love", "night", "you", "ing", "ed", "er", "s"]
    common += ["The", "King"] if cased else []
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*words, *common])]
    tokens += [f"##{word}" for word in (*words, *common)]
    path.write_text("\n".join(dict.fromkeys(tokens)) + "\n", encoding="utf-8")
    return path


def hf_bytes(path: Path, text: str) -> Path:
    """A byte-level BPE of the newer kind: template, truncation, padding, special tokens and others."""
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pipeline.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline.train_from_iterator(
        [text], BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    pipeline.add_special_tokens(["<|begin_of_text|>", "<|endoftext|>", "[MASK]"])
    pipeline.add_tokens(["<tool_call>", "        ", AddedToken("</s>", normalized=False)])
    start = pipeline.token_to_id("<|begin_of_text|>")
    pipeline.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", start)]
    )
    pipeline.enable_truncation(8)
    pipeline.enable_padding(length=8)
    pipeline.save(str(path))
    return path


def hf_unigram(path: Path, text: str) -> Path:
    """A Unigram model whose own vocabulary holds control tokens and byte pieces that text could match."""
    pipeline = Tokenizer(models.Unigram())
    pipeline.normalizer = normalizers.NFKC()
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    pipeline.train_from_iterator(
        [*text.split("\n"), "<>[]|_/"] * 3, UnigramTrainer(vocab_size=400, show_progress=False)
    )
    content = json.loads(pipeline.to_str())
    # Not <tool_call>: a piece of brackets and letters may as well be learned from text, and is then text.
    pieces = [
        *(name for name in CONTROLS if name != "<tool_call>"),
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    content["model"]["vocab"] = [
        *([piece, 0.0] for piece in dict.fromkeys(pieces)),
        *content["model"]["vocab"],
    ]
    content["model"]["unk_id"] = CONTROLS.index("<unk>")
    content["model"]["byte_fallback"] = True
    content["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    path.write_text(json.dumps(content))
    return path
