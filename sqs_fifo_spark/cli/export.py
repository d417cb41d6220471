"""Rows of a journal in a file: Parquet, or JSON lines. The file appears whole, under its name, or not at all."""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from sqs_fifo_spark.cli.output import time_text
from sqs_fifo_spark.columns import ARROW_SCHEMA

FORMATS = ("parquet", "jsonl")
_ENDINGS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


def format_of(file: Path, chosen: str | None) -> str:
    """Return the format of the file. Raises UsageError if neither its name nor `chosen` gives it."""
    found = chosen or _ENDINGS.get(file.suffix.lower())
    if found is None:
        raise click.UsageError(
            f"the name '{file}' does not tell the format: it ends neither in .parquet nor in .jsonl. Give --format."
        )
    return found


def row_as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the source's columns as JSON has it: times as text, attributes as an object, bytes in base64."""
    shown = {name: time_text(value) if name.endswith("Timestamp") and value else value for name, value in row.items()}
    if "messageAttributes" in row:
        shown["messageAttributes"] = {
            name: {key: _text(each) for key, each in value.items() if each is not None}
            for name, value in row["messageAttributes"] or ()
        }
    return shown


def _text(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def write_file(file: Path, chosen: str, batches: Iterable[pa.RecordBatch], *, replace: bool) -> int:
    """Write the rows to a file in the format `chosen`, and return their number.

    A file of that name is replaced, or else left as it is and ClickException raised, as it is where the file cannot be
    written. Any error of `batches` leaves no file behind.
    """
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        if file.exists() and not file.is_file():
            raise click.UsageError(f"'{file}' is not a regular file.")
        if not replace:
            _require_absent(file)
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                count = (_write_parquet if chosen == "parquet" else _write_lines)(out, batches)
                out.flush()
                os.fsync(out.fileno())
            if replace:
                draft.replace(file)
            else:
                os.link(draft, file)  # unlike a rename, it replaces nothing
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        raise click.ClickException(
            f"'{file}' is there already, and was left as it is. Choose another name, or give --force to replace it."
        ) from None
    except OSError as error:
        raise click.ClickException(f"cannot write '{file}': {error.strerror or error}.") from None
    return count


def _require_absent(file: Path) -> None:
    """Raise FileExistsError before the work is done rather than after it."""
    if file.exists():
        raise FileExistsError(file)


def _write_parquet(out: IO[bytes], batches: Iterable[pa.RecordBatch]) -> int:
    count = 0
    with pq.ParquetWriter(out, ARROW_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_lines(out: IO[bytes], batches: Iterable[pa.RecordBatch]) -> int:
    count = 0
    for batch in batches:
        for row in batch.to_pylist():
            out.write(json.dumps(row_as_json(row), ensure_ascii=False).encode() + b"\n")
            count += 1
    return count
