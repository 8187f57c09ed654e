"""mlm-data merge and mlm-data split: several token datasets to one, and one to several by documents."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mlm.corpus.datasets.rewrite import Piece, output_problems, size_of, write_pieces
from mlm.data.bad_data import BadData
from mlm.data.dataset_checks import describe
from mlm.data.indexed import IndexedDataset
from mlm.data.metadata import read_metadata
from mlm.errors import ConfigError, Problem


def merge(out: Path, inputs: Sequence[Path], *, overwrite: bool) -> list[str]:
    """Write the datasets one after the other as OUT; returns what there is to say of the result.

    Documents and sequences stay what they are, ids take the narrowest type that holds all inputs' types.
    Raises ConfigError with everything that forbids it, or BadData; OUT is then as it was.
    """
    problems, pieces, records = _opened(inputs)
    problems += [
        Problem(
            f"OUT {out}", "is one of the inputs", "write to another name, and remove the inputs after that"
        )
        for path in inputs
        if path.absolute() == out.absolute()
    ][:1]
    problems += _mixed(inputs, records)
    if problems:
        raise ConfigError(problems)
    dtype = np.result_type(*(piece.dataset.dtype for piece in pieces)).newbyteorder("<")
    if problems := output_problems(out, "OUT", size_of(pieces, dtype), overwrite=overwrite):
        raise ConfigError(problems)
    record = _merged(inputs, pieces, records, dtype)
    write_pieces(out, pieces, dtype, lambda sums: record and {**record, "sha256": sums}, doing="merging")
    said = [_summary(out, pieces, dtype)]
    unknown = [str(path) for path, known in zip(inputs, records, strict=True) if known is None]
    if unknown:
        said.append(f"no {out.name}.json: of {', '.join(unknown)} it is not recorded which tokenizer made it")
    return said


def split(path: Path, shares: Sequence[Fraction], outs: Sequence[Path], *, overwrite: bool) -> list[str]:
    """Write consecutive runs of the dataset's documents, sized by shares, one to each of outs.

    A boundary is the document nearest to its share. Raises as merge does; each of outs is whole or as it was.
    """
    problems, whole, (record, *_) = _opened([path])
    if problems:
        raise ConfigError(problems)
    dataset = whole[0].dataset
    documents = dataset.num_documents
    ends = [round(sum(shares[:i], Fraction(0)) / sum(shares) * documents) for i in range(len(shares) + 1)]
    pieces = [Piece(dataset, first, stop) for first, stop in pairwise(ends)]
    for share, piece, out in zip(shares, pieces, outs, strict=True):
        if piece.num_tokens == 0:
            wrong = f"is {piece.documents} of {documents:,} documents and holds no tokens"
            problems.append(Problem(f"--parts {float(share):g}", wrong, "give it a larger share"))
        elif out.absolute() == path.absolute():
            problems.append(Problem(f"--out {out}", "is the dataset that is split", "use another name"))
        else:
            size = size_of([piece], dataset.dtype)
            problems += output_problems(out, "--out", size, overwrite=overwrite)
    if problems:
        raise ConfigError(problems)
    said = []
    for piece, out in zip(pieces, outs, strict=True):
        of = {"path": str(path.absolute()), "documents": [piece.first, piece.stop]}
        part = None
        if record is not None:
            # Of the whole alone: which bytes of text became which documents is not known.
            kept = {key: record[key] for key in record if key not in ("skipped", "bytes_of_text")}
            part = {**kept, "documents": piece.documents, "tokens": piece.num_tokens, "part_of": of}
        write_pieces(
            out,
            [piece],
            dataset.dtype,
            lambda sums, part=part: part and {**part, "sha256": sums},  # type: ignore[misc]
            doing=f"writing {out.name}",
        )
        said.append(_summary(out, [piece], dataset.dtype))
    return said


def _opened(
    paths: Sequence[Path],
) -> tuple[list[Problem], list[Piece], list[dict[str, Any] | None]]:
    """Each dataset as one piece, with its record; what is wrong with any of them."""
    problems: list[Problem] = []
    pieces, records = [], []
    for path in paths:
        try:
            dataset = IndexedDataset(path)
            dataset.verify()
            pieces.append(Piece(dataset, 0, dataset.num_documents))
            records.append(read_metadata(path))
        except BadData as error:
            problems.append(error.problem)
            records.append(None)
    return problems, pieces, records


def _mixed(paths: Sequence[Path], records: Sequence[dict[str, Any] | None]) -> list[Problem]:
    """Records that contradict the first one: another tokenizer, another eod, sentences beside documents."""
    known = [(path, record) for path, record in zip(paths, records, strict=True) if record is not None]
    problems = []
    for path, record in known[1:]:
        first_path, first = known[0]
        if record["tokenizer"]["fingerprint"] != first["tokenizer"]["fingerprint"]:
            wrong = (
                f"was encoded with {describe(record['tokenizer'])}, "
                f"and {first_path} with {describe(first['tokenizer'])}"
            )
            problems.append(Problem(str(path), wrong, "encode one of the texts again; ids do not mix"))
            continue
        if record.get("eod") != first.get("eod"):
            shown = [f"{r.get('eod')}" if r.get("eod") is not None else "nothing" for r in (record, first)]
            wrong = f"ends its documents with {shown[0]}, and {first_path} with {shown[1]}"
            problems.append(Problem(str(path), wrong, "prepare both alike"))
        if record.get("level") != first.get("level"):
            wrong = f"is of {record.get('level')}s, and {first_path} of {first.get('level')}s"
            problems.append(Problem(str(path), wrong, "prepare both alike"))
    return problems


def _merged(
    paths: Sequence[Path],
    pieces: Sequence[Piece],
    records: Sequence[dict[str, Any] | None],
    dtype: np.dtype[Any],
) -> dict[str, Any] | None:
    """The record of the whole; None when there is an input without one."""
    known = [record for record in records if record is not None]
    if len(known) < len(records):
        return None
    skipped: dict[str, Any] = {}
    for record in known:
        for reason, number in (record.get("skipped") or {}).items():
            skipped[reason] = skipped.get(reason, 0) + number
    merged = {
        **{key: known[0].get(key) for key in ("tokenizer", "eod", "level")},
        "documents": sum(piece.documents for piece in pieces),
        "tokens": sum(piece.num_tokens for piece in pieces),
        "dtype": dtype.name,
        "sources": [source for record in known for source in record.get("sources") or []],
        "skipped": skipped,
        "merged_from": [str(path.absolute()) for path in paths],
    }
    if all("bytes_of_text" in record for record in known):
        merged["bytes_of_text"] = sum(record["bytes_of_text"] for record in known)
    return merged


def _summary(out: Path, pieces: Sequence[Piece], dtype: np.dtype[Any]) -> str:
    documents = sum(piece.documents for piece in pieces)
    tokens = sum(piece.num_tokens for piece in pieces)
    return f"{out}: {documents:,} documents, {tokens:,} tokens, {dtype.name}"
