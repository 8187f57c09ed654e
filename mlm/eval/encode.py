"""Text to the ids that segments are made of, with the place named where a tokenizer refuses one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer


def encode(tokenizer: Tokenizer, text: str, where: str, *, prefix: int | None = None) -> NDArray[np.int64]:
    """The ids of a text, after `prefix` if there is one: then the text's first token can be a target too.

    Raises BadData when a character tokenizer does not know a character, naming `where` and its offset.
    """
    try:
        ids = tokenizer.encode(text)
    except BadData as error:
        problem = error.problem
        remedy = "its model cannot read this text; one trained with tokenizer=byte or gpt2 reads any"
        raise BadData(f"{where}: {problem.where}", problem.wrong, remedy) from None
    head = [] if prefix is None else [prefix]
    return np.concatenate([np.asarray(head, dtype=np.int64), ids.astype(np.int64)])
