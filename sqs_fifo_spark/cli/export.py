"""Rows of a queue or a journal as JSON, and in a file: Parquet, or JSON lines.

The file appears whole, under its name, or not at all.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from sqs_fifo_spark.cli.output import time_text
from sqs_fifo_spark.columns import ARROW_SCHEMA

CONTENT = ("body", "messageAttributes")
"""The columns that are somebody's data."""
_OPTIONAL = ("sns", "payloadBucket", "payloadKey", "payloadError")
FORMATS = ("parquet", "jsonl")
_ENDINGS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


def rows_as_json(batch: pa.RecordBatch, *, bodies: bool = True) -> Iterator[dict[str, Any]]:
    """Yield rows of the source's columns as JSON has them: times as text, attributes as an object, bytes in base64.

    Without `bodies` they have no content. Columns that only some messages have stand where there is a value.
    """
    names = [name for name in batch.schema.names if bodies or name not in (*CONTENT, "sns")]
    for row in pa.Table.from_batches([batch]).select(names).to_pylist():
        for name in names:
            if name.endswith("Timestamp") and row[name]:
                row[name] = time_text(row[name])
        if "messageAttributes" in row:
            row["messageAttributes"] = {
                name: {key: _text(each) for key, each in value.items() if each is not None}
                for name, value in row["messageAttributes"] or ()
            }
        if row.get("sns") is not None:
            row["sns"] = {**row["sns"], "timestamp": time_text(row["sns"]["timestamp"])}
        yield {name: value for name, value in row.items() if value is not None or name not in _OPTIONAL}


def _text(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each row of the source's columns as a line of JSON."""
    for row in rows_as_json(batch):
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"


def format_of(file: Path, chosen: str | None) -> str:
    """Return the format of the file. Raises UsageError if neither its name nor `chosen` gives it."""
    found = chosen or _ENDINGS.get(file.suffix.lower())
    if found is None:
        raise click.UsageError(
            f"the name '{file}' does not show the format: it ends neither in .parquet nor in .jsonl. Give --format."
        )
    return found


def write_file(file: Path, chosen: str, batches: Iterable[pa.RecordBatch], *, replace: bool) -> int:
    """Write the rows to a file in the format `chosen`, and return their number.

    A file of that name is replaced, or else left as it is and ClickException raised, as it is where the file cannot be
    written. Any error of `batches` leaves no file behind.
    """
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        if file.exists() and not file.is_file():
            raise click.UsageError(f"'{file}' is not a regular file.")
        if file.exists() and not replace:
            raise FileExistsError(file)  # before the work is done rather than after it
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                count = _write(out, chosen, batches)
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


def _write(out: IO[bytes], chosen: str, batches: Iterable[pa.RecordBatch]) -> int:
    count = 0
    with pq.ParquetWriter(out, ARROW_SCHEMA) if chosen == "parquet" else nullcontext() as parquet:
        for batch in batches:
            if parquet:
                parquet.write_batch(batch)
            else:
                out.writelines(json_lines(batch))
            count += batch.num_rows
    return count
