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
from fastmma.products import gemm_choice
from fastmma.products.cublas import book as book_module
from fastmma.products.cublas.book import Book
from fastmma.products.cublas.book_file import TYPES, Contents, Kind, write_contents
from fastmma.products.cublas.rows import Product

SEEDS, MUTATIONS = 4, 150  # mutations a seed
Arrays = dict[str, NDArray[Any]]
KINDS = (Kind("bf16", "nt", "bf16", "bias"), Kind("bf16", "nn"), Kind("f16", "nt", "f16"), Kind("e4m3", "nt", "bf16", stack=3))
CHOICES = [
    (23, 0, 3, 1, 0, 0, 13, 0, 0, -1, 4),
    (66, 0, 2, 2, 0, 0, 35, 0, 0, -1, 3),
    (24, 0, 5, 4, 0, 0, 0, 0, 0, -1, 1),
    (43, 20, -1, 2, 0, 0, 34, 0, 3, 1 << 40, 0),
]
# kind, M, N, K and choice
PRODUCTS = [(0, 64, 3, 1024, 0), (1, 512, 512, 4096, 1), (2, 24, 40, 4100, 2), (2, 25, 40, 4100, 3), (3, 16, 16, 64, 1)]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("books") / "book.npz"
    columns = {name: np.array([row[index] for row in PRODUCTS]) for index, name in enumerate(("kind", "m", "n", "k", "choice"))}
    write_contents(path, Contents("NVIDIA H100", "cuBLASLt", "99.1.0", "as a test says", KINDS, np.array(CHOICES), columns))
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
    forget()
    for kind, m, n, k in pages.products():
        product = Product(TYPES[kind.type].fmt, kind.layout, m, n, k, kind.out)
        assert pages.find(kind.type, product, stack=kind.stack, biased=bool(kind.addend)) is not None
        if max(m, n, k) < 1 << 14 and kind.stack < 4:
            assert said_of_plan(kind, m, n, k).isprintable()
    return True


def said_of_plan(kind: Kind, m: int, n: int, k: int) -> str:
    """The error of a preset that asks the book for a product, and nothing where it follows it."""
    dtype = fastmma.FORMATS[TYPES[kind.type].fmt].dtype
    stack = (kind.stack,) if kind.stack > 1 else ()
    a, b = (
        np.empty((*stack, *(shape if side == "n" else shape[::-1])), dtype).swapaxes(-1, -1 if side == "n" else -2)
        for shape, side in zip(((m, k), (k, n)), kind.layout, strict=True)
    )
    bias = np.zeros(n, np.float32) if kind.addend else None
    try:
        fastmma.gemm_plan(a, b, bias=bias, target="H100", preset="cublas", out_dtype=kind.out or "bf16")
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
    assert {said_of_plan(KINDS[kind], m, n, k) for kind, m, n, k, _ in PRODUCTS} == {""}
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


def attribute(row: int, column: int, value: int) -> Callable[[Arrays, dict[str, Any]], None]:
    def change(arrays: Arrays, _about: dict[str, Any]) -> None:
        arrays["choices"] = arrays["choices"].copy()
        arrays["choices"][row, column] = value

    return change


def kind(place: int, field: int, value: Any) -> Callable[[Arrays, dict[str, Any]], None]:
    def change(_arrays: Arrays, about: dict[str, Any]) -> None:
        about["kinds"][place][field] = value

    return change


LIES: dict[str, tuple[Callable[[Arrays, dict[str, Any]], Any], str]] = {
    "a choice that is not there": (changed("choice", 0, 4), "it has 4 choices, and 'choice' names one more"),
    "a kind of no product": (changed("kind", -1, 9), "it has 4 kinds, and 'kind' names one more"),
    "no rows": (changed("m", 0, 0), "'m' must be at least 1"),
    "no k": (changed("k", 0, 0), "'k' must be at least 1"),
    "a product twice": (changed("m", 3, 24), "in ascending order, and each there once"),
    "no name of a GPU": (lambda _, about: about.update(gpu=3), "gpu of what it says of itself cannot be"),
    "an empty version": (lambda _, about: about.update(version=""), "version of what it says of itself cannot be"),
    "a library of two lines": (lambda _, about: about.update(library="a\nb"), "library of what it says of itself cannot be"),
    "no kinds": (lambda _, about: about.update(kinds=3), "its kinds of products must be a list"),
    "a kind of few fields": (lambda _, about: about["kinds"].__setitem__(0, ["bf16"]), "a kind of products must have type, layout"),
    "an unknown type": (kind(0, 0, "f17"), "a kind of products cannot be"),
    "an unknown layout": (kind(0, 1, "nx"), "a kind of products cannot be"),
    "an unknown result": (kind(0, 2, "e4m3"), "a kind of products cannot be"),
    "an unknown addend": (kind(0, 3, "c"), "a kind of products cannot be"),
    "a stack of none": (kind(0, 4, 0), "a kind of products cannot be"),
    "a stack of truth": (kind(0, 4, True), "a kind of products cannot be"),
    "a stack beyond number": (kind(0, 4, 10**40), "a kind of products cannot be"),
    "two kinds that are one": (lambda _, about: about["kinds"].__setitem__(1, about["kinds"][0]), "there once each"),
    "a negative algorithm": (attribute(0, 0, -1), "has numbers below 0"),
    "a split of k below -1": (attribute(3, 2, -2), "has numbers below 0"),
    "a tile beyond cuBLASLt's": (attribute(0, 1, 1 << 32), "has attributes from 4294967295 on"),
    "fewer samples than none": (attribute(0, 10, -3), "has numbers below 0"),
    "choices without samples": (lambda arrays, _: arrays.update(choices=arrays["choices"][:, :10]), "must have 11 columns"),
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


@pytest.mark.parametrize("field", range(5))
def test_kinds_with_every_sort_of_junk(field: int, valid: bytes, path: Path) -> None:
    arrays = arrays_of(valid)
    for junk in JUNK:
        about = json.loads(arrays["about"].tobytes())
        about["kinds"][0][field] = junk
        is_read(path, with_about(arrays, json.dumps(about).encode()))


@pytest.mark.parametrize("plans", [3, b"book.npz", ["book.npz"], {}])
def test_plans_that_are_no_file(plans: Any) -> None:
    half = np.ones((4, 4), np.float16)
    with pytest.raises(fastmma.OperandTypeError, match="plans must be the name of a file"):
        fastmma.cublas.plan(half, half, plans=plans)


def test_a_file_of_plans_is_checked_as_the_book_is(tmp_path: Path) -> None:
    half, path = np.ones((4, 4), np.float16), tmp_path / "own.npz"
    path.write_bytes(b"no book")
    for place in (path, str(path), tmp_path, tmp_path / "none"):
        with pytest.raises(OperandError, match=r"plans: .* is no plan book: "):
            fastmma.cublas.plan(half, half, plans=place)


def test_places_that_are_no_files(path: Path) -> None:
    half = np.ones((4, 4), np.float16)
    for make in (lambda: None, path.mkdir, lambda: os.mkfifo(path) if hasattr(os, "mkfifo") else None):
        make()
        with pytest.raises(OperandError, match=r"FASTMMA_PLAN_BOOK: .* is no plan book: .*(no such file|is a folder|is a pipe)"):
            fastmma.gemm_plan(half, half, target="H100", preset="cublas")
        if path.is_dir():
            path.rmdir()
