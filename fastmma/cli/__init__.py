"""The command line: commands over the public API, and the one place where what stops them becomes a line and an exit status."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper

from fastmma.host.errors import FastmmaError
from fastmma.host.float_mode import default_floats

__all__ = ["main"]

_FAILED = 2
_INTERRUPTED, _UNREAD = 130, 141  # as of programs that the signals SIGINT and SIGPIPE end
_LONGEST = 2000  # characters of a message


def _line(message: str) -> str:
    """A message as one line that a terminal shows as it is."""
    text = " ".join(message.split())
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _say(message: str) -> None:
    """Print one line to standard error, which on a terminal goes on in another one where it would be too wide."""
    if sys.stderr is None:
        return
    with suppress(OSError):
        text = f"fastmma: {_line(message)}"
        if sys.stderr.isatty():
            from fastmma.cli.terminal import columns_of, folded

            text = "\n".join(folded(text, columns_of(sys.stderr), "  "))
        print(text, file=sys.stderr, flush=True)


def _fail(message: str, status: int = _FAILED) -> int:
    _say(message)
    return status


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """A warning is a line on standard error, without the place in the sources."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(str(message))
        yield


@contextmanager
def _any_encoding() -> Iterator[None]:
    """Characters that standard output's encoding does not have are escaped."""
    output = sys.stdout
    if not isinstance(output, TextIOWrapper):
        yield
        return
    errors = output.errors
    output.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        with suppress(OSError):
            output.reconfigure(errors=errors)


def _drop_output() -> None:
    """Lead what standard output still holds nowhere if it cannot be written, or the interpreter would complain when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


@default_floats
def _run(arguments: Sequence[str]) -> int:
    """Run a command, whose failures are raised as they are: `main` of click's commands would end the process, and print, for some."""
    from click.exceptions import Exit

    from fastmma.cli.app import app

    try:
        with _any_encoding(), _warnings_as_lines(), app.make_context("fastmma", list(arguments)) as context:
            app.invoke(context)
            sys.stdout.flush()
    except Exit as end:
        sys.stdout.flush()
        return end.exit_code
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        The exit status: 0; 1 if `verify` found a difference; 2, with one line on standard error, if the input is bad or the output cannot
        be written; 130 after Ctrl-C; 141 if the program that reads the output has ended.
    """
    if sys.stdout is None:
        return _fail("standard output is closed; redirect it to a file, or to /dev/null")
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if any("\0" in each for each in given):  # no shell passes one, and the system is asked for files of such names
        return _fail("an argument holds a null character")
    try:
        return _run(given)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "interrupted", _INTERRUPTED)
    except FastmmaError as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(f"not enough memory: {error}".rstrip(": "))
    except BrokenPipeError:
        _drop_output()
        return _UNREAD
    except OSError as error:
        _drop_output()
        what = "the result cannot be written" if error.filename is None else str(error.filename)
        return _fail(f"{what}: {error.strerror or error}")
    except Exception as error:
        from click import ClickException  # here, as what prints one line needs no click

        if not isinstance(error, ClickException):
            raise
        return _fail(error.format_message())
