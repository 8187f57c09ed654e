"""Parquet, row by row within bounded memory. Needs pyarrow, of the optional extra `data`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlm.corpus.reading.inputs import Source
from mlm.data.bad_data import BadData


def row_blocks(
    source: Source, columns: Sequence[str], first_row: int, rows_at_once: int, block_bytes: int
) -> Iterator[tuple[bytes, int, int, int]]:
    """(rows as a stream of Arrow's, first row, row after the last, rows of the file), a block at a time.

    Raises BadData when the file is damaged, or a column is missing or holds no text.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        # Not prebuffered: whole row groups, often gigabytes, would be held in memory.
        with parquet.ParquetFile(source.path, pre_buffer=False, buffer_size=1 << 20) as file:
            _check_columns(source, file, columns, pyarrow.types)
            rows, start, stop, size = file.metadata.num_rows, first_row, 0, 0
            gathered: list[Any] = []
            for batch in file.iter_batches(rows_at_once, columns=list(columns), use_threads=False):
                begin, stop = stop, stop + batch.num_rows
                if stop <= first_row:
                    continue
                batch = batch.slice(max(first_row - begin, 0))
                gathered.append(batch)
                size += batch.nbytes
                if size >= block_bytes:
                    yield _packed(gathered), start, stop, rows
                    gathered, start, size = [], stop, 0
            if gathered:
                yield _packed(gathered), start, stop, rows
    except (pyarrow.ArrowException, OSError) as error:
        text = str(error).splitlines()[0]
        raise BadData(source.name, f"is no Parquet file that can be read ({text})", "copy it again") from None


def _check_columns(source: Source, file: Any, columns: Sequence[str], types: Any) -> None:
    schema = file.schema_arrow
    for column in columns:
        if schema.names.count(column) != 1:
            wrong = f"has no column {column!r} (it has {', '.join(schema.names)})"
            raise BadData(source.name, wrong, "name its columns with --json-keys")
        kind = schema.field(column).type
        value = kind.value_type if types.is_dictionary(kind) else kind
        tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
        if not any(test(value) for test in tests):
            wrong = f"has the column {column!r} with {kind}, not text"
            raise BadData(source.name, wrong, "name a column of strings with --json-keys")


def _packed(batches: list[Any]) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def rows_of(data: bytes, columns: Sequence[str]) -> Iterator[list[bytes | None]]:
    """The wanted columns of each row, as UTF-8 that nobody has checked; None where the file has null."""
    import pyarrow

    with pyarrow.ipc.open_stream(data) as reader:
        for batch in reader:
            # Bytes, because one wrong string must not hide the others.
            lists = [
                batch.column(column).cast(pyarrow.large_string()).cast(pyarrow.large_binary()).to_pylist()
                for column in columns
            ]
            yield from map(list, zip(*lists, strict=True))
