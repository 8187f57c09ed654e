"""Models of the transformers library with weights in which nothing is 0 or 1, as folders and in memory."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

GPT2 = {"vocab_size": 97, "n_positions": 24, "n_embd": 48, "n_layer": 2, "n_head": 4}
BERT = {
    "vocab_size": 90,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": 24,
}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def library() -> Any:
    """The transformers module; its imports warn of their own affairs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    transformers.utils.logging.disable_progress_bar()
    return transformers


def made(model_class: str, **changes: Any) -> Any:
    """A small GPT-2 or BERT of that class in eval mode, every weight and bias random."""
    there = library()
    is_gpt2 = model_class.startswith("GPT2")
    config = (there.GPT2Config if is_gpt2 else there.BertConfig)(
        **{**(GPT2 if is_gpt2 else BERT), **IDS, **changes}
    )
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        model = getattr(there, model_class)(config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def saved(model: Any, folder: Path, **how: Any) -> Path:
    """The folder with the model in it, as the library itself writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, **how)
    return folder


def words(folder: Path, size: int) -> Path:
    """A vocab.txt of BERT's kind with so many tokens in the folder."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(size - 5))]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    return folder
