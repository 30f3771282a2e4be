"""A folder for compiled kernels that no other test has."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fastmma.kernels.llvm import disk_cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for kernels, and no warning said before."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(disk_cache, "_warned", threading.Lock())
    return tmp_path / "kernels"
