"""Results on disk while a study runs: a line of JSON a case, on the disk before the next case begins, and the same as CSV."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from fastmma.host.errors import BackendError, OperandError

Record = dict[str, Any]
JSON_LINES, CSV = "results.jsonl", "results.csv"


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def csv_text(records: Iterable[Mapping[str, Any]], columns: Iterable[str], *, header: bool = True) -> str:
    """Records as CSV; lists as JSON, None as nothing.

    Examples
    --------
    >>> csv_text([{"k": 32, "error": None, "bins": [1, 2]}], ["k", "error", "bins"])
    'k,error,bins\\n32,,"[1, 2]"\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(columns)
    if header:
        writer.writerow(names)
    writer.writerows([_cell(record.get(name)) for name in names] for record in records)
    return text.getvalue()


class Results(list[Record]):
    """The records of a study: a list of dicts with the same keys, a tidy table with one row a case."""

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`.

        Raises
        ------
        BackendError
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise BackendError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame.from_records(list(self))


def _parsed(path: Path) -> tuple[list[Record], int]:
    """The whole records of a file and how many bytes they take: a last line that a crash cut off is left out."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    records = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("case"), str):
            raise OperandError(f"{path}, line {number} is no record of a study: remove the line, or choose another folder")
        records.append(record)
    return records, len(whole)


def _replace(path: Path, text: str) -> None:
    """Write a whole file: it is the old one or the new one, whatever happens."""
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _lock(file: IO[bytes], folder: Path) -> None:
    """Keep other runs out of the folder for as long as the file is open; the system forgets it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OperandError(f"{folder}: another study is writing its results there; wait for it, or choose another folder") from None


def _write(file: IO[bytes], text: str) -> None:
    """All of a text, at once: a disk takes a part of it only when it is full."""
    data = text.encode()
    if file.write(data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Store:
    """The results in a folder, open for more.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    columns : sequence of str
        Of the CSV file.

    Raises
    ------
    OperandError
        If the folder cannot be written, another run writes there, or ``results.jsonl`` holds something else.
    """

    def __init__(self, folder: Path, columns: Iterable[str]) -> None:
        self.folder, self._columns = folder, list(columns)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lines = (self.folder / JSON_LINES).open("ab", buffering=0)
        except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
            raise OperandError(f"{self.folder}: cannot write results there: {getattr(error, 'strerror', error)}") from None
        try:
            _lock(self._lines, self.folder)
            found, size = _parsed(self.folder / JSON_LINES)
            self._lines.truncate(size)
            self._records = {record["case"]: record for record in found}
            _replace(self.folder / CSV, csv_text(self._records.values(), self._columns))
            self._table = (self.folder / CSV).open("ab", buffering=0)
        except OSError as error:
            self._lines.close()
            raise OperandError(f"{self.folder}: cannot write results there: {error.strerror}") from None
        except BaseException:
            self._lines.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._table.close()
        if kind is not None:  # it may have come between the two files
            with contextlib.suppress(OSError):
                _replace(self.folder / CSV, csv_text(_parsed(self.folder / JSON_LINES)[0], self._columns))
        self._lines.close()

    def get(self, case: str) -> Record | None:
        """The record of a case, if it was computed, and whole."""
        record = self._records.get(case)
        return record if record is not None and record.keys() >= set(self._columns) else None

    def add(self, record: Record) -> None:
        """Write one record through to the disk.

        Raises
        ------
        OperandError
            If the disk does not take it; what was written before stays whole.
        """
        try:
            _write(self._lines, _line(record))
            os.fsync(self._lines.fileno())
            self._records[record["case"]] = record
            _write(self._table, csv_text([record], self._columns, header=False))
        except OSError as error:
            raise OperandError(f"{self.folder}: cannot write results there: {error.strerror}") from None
