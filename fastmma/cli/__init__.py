"""The command line: commands over the public API."""

from fastmma.cli.app import main

__all__ = ["main"]
