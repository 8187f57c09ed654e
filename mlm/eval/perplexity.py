"""Perplexity of any text: a text file is one document, a .jsonl file one a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlm.data.bad_data import BadData
from mlm.data.tokenizers import Tokenizer
from mlm.eval.encode import encode
from mlm.eval.figures import text_figures
from mlm.eval.files import DataFile, jsonl_texts, line_of, read_source
from mlm.eval.lines import head
from mlm.eval.requests import Scores, Segment, Variant
from mlm.eval.windows import windows

TEXT = DataFile(role="text")


class Perplexity:
    """Figures by token, word and byte of the user's own text, with windows side by side and half over."""

    name = "perplexity"
    summary = "perplexity by token, word and byte of any text file, or of the texts of a .jsonl file"
    default_files: tuple[DataFile, ...] = (TEXT,)

    def variants(
        self, paths: Mapping[str, Path], tokenizer: Tokenizer, context: int, limit: int | None
    ) -> list[Variant]:
        """The rows of the table; limit counts documents of .jsonl and lines that are not blank of text.

        Raises BadData naming file and line where a document cannot be read or is too short.
        """
        source = read_source(paths[TEXT.role], TEXT)
        if source.path.suffix == ".jsonl":
            found = jsonl_texts(source)
            texts = found[:limit]
            counts: dict[str, Any] = {"documents": len(texts), "documents_in_file": len(found)}
            note = f"; only the first {len(texts):,} of {len(found):,} documents"
            whole = len(texts) == len(found)
        else:
            part = head(source.text, limit)
            texts, whole = [(1, part.text)], part.whole
            counts = {"documents": 1, "lines": part.lines, "lines_in_file": part.of}
            note = f"; only the first {part.lines:,} of {part.of:,} lines"
        encoded = [
            encode(tokenizer, text, line_of(source, number), prefix=tokenizer.eod) for number, text in texts
        ]
        for (number, _), tokens in zip(texts, encoded, strict=True):
            if len(tokens) < 2:
                where = line_of(source, number)
                raise BadData(where, "has fewer than two tokens", "leave it out, or give a longer text")
        size = {
            "n_tokens": sum(len(tokens) - 1 for tokens in encoded),
            "n_words": sum(len(text.split()) for _, text in texts),
            "n_bytes": sum(len(text.encode()) for _, text in texts),
        }
        first = (
            "an end-of-text token before it" if tokenizer.eod is not None else "its first token not scored"
        )

        def row(name: str, stride: int) -> Variant:
            segments: list[Segment] = []
            for tokens in encoded:
                segments += windows(tokens, context, stride)
            protocol = (
                f"each document, {first}, in windows of {context:,} tokens advanced by {stride:,}, every "
                "token scored once; n_words: words between whitespace; ppl_token = exp(nll_total / n_tokens)"
            )
            record = {**counts, **source.record(), "window": context, "stride": stride}

            def summarise(scores: Scores) -> dict[str, Any]:
                return {**text_figures(float(scores.nll.sum()), **size), **record}

            return Variant(name, protocol + ("" if whole else note), segments, summarise, "ppl_token")

        rows = [row("non-overlapping", context)]
        if context >= 2:
            rows.append(row(f"stride {context // 2}", context // 2))
        return rows
