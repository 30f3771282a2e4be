"""Damaged and lying plan books: read as what they hold, or refused in one line."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.hostile import JUNK, archive, mutated, retyped, seeds, truncations

import fastmma
from fastmma import OperandError
from fastmma.products import book as book_module
from fastmma.products import gemm_choice
from fastmma.products.book import Book, Entry, Request
from fastmma.verification.cublas_record import write_book

SEEDS, MUTATIONS = 4, 150  # mutations a seed
Arrays = dict[str, NDArray[Any]]
PRODUCTS: list[tuple[Request, Entry | None]] = [
    (Request("biased", "bf16", "nt", 64, 3, 1024), Entry("m16n8k16", 64, 3, 8, "inplace", "unknown")),
    (Request("product", "bf16", "nn", 512, 512, 4096), Entry("wgmma", 0, 2, 64, "f32", "add")),
    (Request("product", "f16", "nt", 24, 40, 4100), Entry("m16n8k8", 32, 5, 8, "out", "add-rounded")),
    (Request("product", "f16", "nt", 25, 40, 4100), None),
    (Request("product", "e4m3", "nt", 16, 16, 64), Entry("wgmma", 0, 1, 0, "f32", "badd")),
]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("books") / "book.npz"
    asked, found = zip(*PRODUCTS, strict=True)
    write_book(path, asked, found, gpu="H100", name="NVIDIA H100", library="cuBLAS 99", through="PyTorch 99")
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A plan book of the test's own, which presets ask."""
    found = tmp_path / "own.npz"
    monkeypatch.setenv("FASTMMA_PLAN_BOOK", str(found))
    yield found
    forget()


def forget() -> None:
    book_module._read.cache_clear()
    gemm_choice._remembered.cache_clear()


def opened(path: Path) -> Book | str:
    """A plan book, or the line by which it is refused."""
    try:
        return Book(path)
    except OperandError as error:
        return str(error)


def is_read(path: Path, data: bytes) -> bool:
    """Whether a file is a plan book, of which all products can be looked up then; else it is refused in one line."""
    path.write_bytes(data)
    pages = opened(path)
    if isinstance(pages, str):
        assert pages.isprintable(), pages
        assert len(pages) < 1000
        return False
    for request in pages.requests():
        for gpu in pages.gpus:
            assert pages.find(gpu, request) is None or pages.recorded(gpu, request)
            assert pages.find(gpu, request) in pages.entries
    forget()
    for request in pages.requests():
        if max(request[3:]) < 1 << 14:
            assert said_of_plan(request).isprintable()
    return True


def said_of_plan(request: Request) -> str:
    """The error of a preset that asks the book for a product, and nothing where it follows it."""
    dtype, order = fastmma.FORMATS[request.fmt].dtype, {"n": "C", "t": "F"}
    a, b = (
        np.empty(shape, dtype, order=order[side])  # type: ignore[call-overload]
        for shape, side in zip(((request.m, request.k), (request.k, request.n)), request.layout, strict=True)
    )
    bias = np.zeros(request.n, np.float32) if request.kind == "biased" else None
    try:
        fastmma.gemm_plan(a, b, bias=bias, target="H100", preset="cublas", out_dtype="bf16")
    except fastmma.FastmmaError as error:
        return str(error)
    return ""


def arrays_of(data: bytes) -> Arrays:
    with np.load(io.BytesIO(data)) as found:
        return dict(found)


def npz(arrays: Arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def with_about(arrays: Arrays, text: bytes) -> bytes:
    return npz(arrays | {"about": np.frombuffer(text, np.uint8)})


def test_books_that_are_cut_off(valid: bytes, path: Path) -> None:
    assert is_read(path, valid)
    assert {said_of_plan(request) for request, _ in PRODUCTS} == {""}
    for cut in truncations(valid, 3):
        is_read(path, cut)
    assert not is_read(path, valid[:-1])


def test_mutated_books(valid: bytes, path: Path) -> None:
    read = tried = 0
    plain = npz(arrays_of(valid))
    for seed in seeds(SEEDS):
        rng = random.Random(seed)
        for _ in range(MUTATIONS):
            read += is_read(path, mutated(rng.choice((valid, plain)), rng))
            tried += 1
    assert 0 < read < tried


def test_books_with_other_texts_and_tables(valid: bytes, path: Path) -> None:
    arrays = arrays_of(valid)
    about = arrays["about"].tobytes()
    read = tried = 0
    for seed in seeds(SEEDS):
        rng = random.Random(seed)
        for _ in range(MUTATIONS):
            read += is_read(path, with_about(arrays, retyped(about, rng)))
            tried += 1
    assert read < tried / 2


def test_books_with_other_columns(valid: bytes, path: Path) -> None:
    arrays = arrays_of(valid)
    for name, column in arrays.items():
        for dtype in ("u1", "u2", "u4", "u8", "i1", "i4", "i8", "f2", "f4", "f8", "c8", "?", "S3", "V4", ">u4", ">u2", "O"):
            with np.errstate(all="ignore"):
                other = np.zeros(len(column), dtype) if dtype == "V4" else column.astype(dtype)
            same = other.dtype.newbyteorder("=") == column.dtype
            assert is_read(path, archive({f"{each}.npy": npy(held) for each, held in (arrays | {name: other}).items()})) == same
        for other in (column[:-1], column[:0], column[None], column[0], np.append(column, column[-1:])):
            assert not is_read(path, npz(arrays | {name: other}))
        assert not is_read(path, npz({each: held for each, held in arrays.items() if each != name}))


def npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def changed(name: str, place: int, value: int) -> Callable[[Arrays, dict[str, Any]], None]:
    def change(arrays: Arrays, _about: dict[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


def entry(field: int, value: Any) -> Callable[[Arrays, dict[str, Any]], None]:
    """The entry that is another one is the one of bf16 by mma.m16n8k16."""

    def change(_arrays: Arrays, about: dict[str, Any]) -> None:
        about["entries"][0][field] = value

    return change


LIES: dict[str, tuple[Callable[[Arrays, dict[str, Any]], Any], str]] = {
    "an index of no entry": (changed("H100", 0, 5), "it has 4 entries, and 'H100' names one more"),
    "a kind of no product": (changed("kind", -1, 9), "it has 4 kinds of products"),
    "no rows": (changed("m", 0, 0), "'m' must be at least 1"),
    "no k": (changed("k", 0, 0), "'k' must be at least 1"),
    "a product twice": (changed("m", 4, 24), "in ascending order, and each there once"),
    "no GPU's column": (lambda _, about: about["gpus"].update(H300="x"), "it has no array 'H300'"),
    "a GPU without a name": (lambda _, about: about["gpus"].update(H100=3), "its GPUs must have names"),
    "a column of sizes as a GPU": (lambda _, about: about["gpus"].update(m="x"), "'m' must be of type uint16"),
    "a library of two lines": (lambda _, about: about.update(library="a\nb"), "library of what it says of itself cannot be"),
    "an unknown kind": (lambda _, about: about["kinds"][0].__setitem__(0, "grouped"), "a kind of products cannot be"),
    "an unknown format": (lambda _, about: about["kinds"][0].__setitem__(1, "f17"), "a kind of products cannot be"),
    "an unknown layout": (lambda _, about: about["kinds"][0].__setitem__(2, "nx"), "a kind of products cannot be"),
    "two kinds that are one": (lambda _, about: about["kinds"].__setitem__(1, about["kinds"][0]), "each there once"),
    "no fields": (lambda _, about: about["entries"].__setitem__(0, []), "an entry must have instruction, first_tile"),
    "an instruction of no table": (entry(0, "m16n8k77"), "an entry of bf16 cannot be"),
    "an instruction in words": (entry(0, "m16n8k16.row.col.f32.bf16.bf16.f32 or so"), "an entry cannot be"),
    "another first tile": (entry(1, 24), "whose instruction has another k"),
    "a negative tile": (entry(1, -16), "an entry cannot be"),
    "no parts": (entry(2, 0), "an entry cannot be"),
    "parts of a float": (entry(2, 3.0), "split_k of entry"),
    "parts of truth": (entry(2, True), "split_k of entry"),
    "parts beyond number": (entry(2, 10**40), "an entry cannot be"),
    "an unknown join": (entry(4, "sideways"), "an entry cannot be"),
    "an unknown end": (entry(5, "round-down"), "an entry cannot be"),
}


@pytest.mark.parametrize("name", LIES)
def test_lying_books(name: str, valid: bytes, path: Path) -> None:
    change, said = LIES[name]
    arrays = arrays_of(valid)
    about = json.loads(arrays["about"].tobytes())
    change(arrays, about)
    path.write_bytes(with_about(arrays, json.dumps(about).encode()))
    half = np.ones((4, 4), np.float16)
    forget()
    with pytest.raises(OperandError) as caught:
        fastmma.gemm_plan(half, half, target="H100", preset="cublas")
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"FASTMMA_PLAN_BOOK: {path} is no plan book: ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("field", range(6))
def test_entries_with_every_kind_of_junk(field: int, valid: bytes, path: Path) -> None:
    arrays = arrays_of(valid)
    for junk in JUNK:
        about = json.loads(arrays["about"].tobytes())
        about["entries"][0][field] = junk
        is_read(path, with_about(arrays, json.dumps(about).encode()))


def test_places_that_are_no_files(path: Path) -> None:
    half = np.ones((4, 4), np.float16)
    for make in (lambda: None, path.mkdir, lambda: os.mkfifo(path) if hasattr(os, "mkfifo") else None):
        make()
        with pytest.raises(OperandError, match=r"FASTMMA_PLAN_BOOK: .* is no plan book: .*(no such file|is a folder|is a pipe)"):
            fastmma.gemm_plan(half, half, target="H100", preset="cublas")
        if path.is_dir():
            path.rmdir()
