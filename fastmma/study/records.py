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

from fastmma.host.errors import OperandError
from fastmma.host.files import content, handle, named, reason, written
from fastmma.host.locks import lock
from fastmma.host.modules import optional
from fastmma.host.strict_json import parsed

Record = dict[str, Any]
JSON_LINES, CSV = "results.jsonl", "results.csv"
_BEGIN = b'{"case": "'
_LARGEST_FILE = 1 << 28  # bytes: of some 200,000 records
_LONGEST_LINE = 1 << 16


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
        return optional("pandas", "to_pandas needs", "pandas").DataFrame.from_records(list(self))


def _record(line: bytes) -> Record | None:
    """The record in a line, which holds texts, numbers, truth values, None and lists of them; None where there is none."""
    try:
        found = parsed(line) if len(line) <= _LONGEST_LINE else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("case"), str):
        return None
    values = [each for value in found.values() for each in (value if isinstance(value, list) else [value])]
    return found if not any(isinstance(each, list | dict) for each in values) else None


def _records(path: Path) -> tuple[dict[str, bytes], int]:
    """The lines of a file by their cases, and how many bytes they take: a last line that a crash cut off is left out.

    Raises
    ------
    OperandError
        If a line is no record, or there are more bytes than studies write.
    """
    *whole, last = content(path, _LARGEST_FILE).split(b"\n")
    if not (last.startswith(_BEGIN) or _BEGIN.startswith(last)):
        whole.append(last)
    records: dict[str, bytes] = {}
    for number, line in enumerate(whole, 1):
        record = _record(line)
        if record is None:
            raise OperandError(f"{path}, line {number} is no record of a study: remove the line, or choose another folder")
        records[record["case"]] = line
    return records, sum(len(line) + 1 for line in whole)


def _append(path: Path) -> IO[bytes]:
    """A file open for more, made if there is none; nothing but a regular one."""
    return open(handle(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)


def _lock(file: IO[bytes], folder: Path) -> None:
    """Keep other runs out of the folder for as long as the file is open."""
    if not lock(file):
        raise OperandError(f"{folder}: another study is writing its results there; wait for it, or choose another folder")


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
            named(self.folder).mkdir(parents=True, exist_ok=True)
            self._lines = _append(self.folder / JSON_LINES)
        except OSError as error:
            raise self._refused(error) from None
        try:
            _lock(self._lines, self.folder)
            self._records, size = _records(self.folder / JSON_LINES)
            self._lines.truncate(size)
            _append(self.folder / CSV).close()
            self._write_table()
            self._table = _append(self.folder / CSV)
        except OSError as error:
            self._lines.close()
            raise self._refused(error) from None
        except BaseException:
            self._lines.close()
            raise

    def _refused(self, error: OSError) -> OperandError:
        return OperandError(f"{self.folder}: cannot write results there: {reason(error)}")

    def _write_table(self) -> None:
        """All records as CSV: the file is the old one or the new one, whatever happens."""
        with written(self.folder / CSV) as file:
            file.write(csv_text([], self._columns).encode())
            for line in self._records.values():
                file.write(csv_text([json.loads(line)], self._columns, header=False).encode())

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._table.close()
        if kind is not None:  # it may have come between the two files
            with contextlib.suppress(OperandError):
                self._records, size = _records(self.folder / JSON_LINES)
                with contextlib.suppress(OSError):
                    self._lines.truncate(size)
                self._write_table()
        self._lines.close()

    def get(self, case: str) -> Record | None:
        """The record of a case, if it was computed, and whole."""
        line = self._records.get(case)
        record = None if line is None else _record(line)
        return record if record is not None and record.keys() >= set(self._columns) else None

    def add(self, record: Record) -> None:
        """Write one record through to the disk.

        Raises
        ------
        OperandError
            If the disk does not take it; what was written before stays whole.
        """
        line = _line(record)
        try:
            _write(self._lines, line)
            os.fsync(self._lines.fileno())
            self._records[record["case"]] = line.rstrip().encode()
            _write(self._table, csv_text([record], self._columns, header=False))
        except OSError as error:
            raise self._refused(error) from None
