"""Plan books: what cuBLASLt's log means, samples that tell orders of k apart, and books that are written and read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fastmma
from fastmma.products.book import Book, Entry, Request, book
from fastmma.verification.cublas_log import Choice, entry
from fastmma.verification.cublas_record import _matched, record_cublas, write_book
from fastmma.verification.cublas_samples import _product, confirmed, kept, vectors

# lines of the log on an H200, by product
LOGGED = [
    (Request("product", "bf16", "nn", 512, 512, 4096), Choice(512, 512, 4096, 66, 2, "COMPUTE_TYPE", "64x64", 64, False)),
    (Request("product", "bf16", "nt", 496, 441, 1216), Choice(496, 441, 1216, 24, 16, "COMPUTE_TYPE", "128x128", 0, False)),
    (Request("product", "f16", "nt", 624, 305, 1280), Choice(624, 305, 1280, 24, 17, "OUTPUT_TYPE", "128x128", 0, False)),
    (Request("biased", "bf16", "nt", 64, 3, 1024), Choice(64, 3, 1024, 24, 3, "INPLACE", "64x64", 0, True)),
    (Request("biased", "bf16", "nt", 162, 260, 64), Choice(162, 260, 64, 23, 2, "INPLACE", "32x32", 128, True)),
    (Request("product", "bf16", "tn", 592, 286, 1216), Choice(592, 286, 1216, 23, 4, "OUTPUT_TYPE", "128x64", 64, False)),
    (Request("product", "tf32", "nn", 28, 53, 373), Choice(28, 53, 373, 63, 1, "", "32x32", 64, False)),
    (Request("product", "tf32", "nt", 8192, 50304, 768), Choice(8192, 50304, 768, 43, -1, "COMPUTE_TYPE", "128x128", 32, False)),
]


@pytest.mark.parametrize(("request_", "choice"), LOGGED, ids=[str(request) for request, _ in LOGGED])
def test_a_line_of_the_log_means_the_order_that_the_book_has(request_: Request, choice: Choice) -> None:
    assert entry(request_, choice) == book("cublas").find("H200", request_)


def test_a_kernel_without_tensor_cores_has_no_order() -> None:
    assert entry(Request("product", "f16", "nn", 1, 1, 256), Choice(1, 1, 256, 14, 496, "COMPUTE_TYPE", "", 0, False)) is None


@pytest.mark.parametrize("fmt", ["bf16", "f16", "tf32", "e4m3"])
def test_samples_tell_orders_apart(fmt: str) -> None:
    a, b = (each.astype(np.float64) for each in vectors(fmt, 1001))
    partner = np.abs(a @ b.T) / (np.abs(a) @ np.abs(b).T)
    assert partner.max() < 0.1  # all but the one k without a partner cancels
    request = Request("product", fmt, "nn", 5, 300, 1001)
    orders = [Entry("wgmma", 0, 1, 0, "f32", "badd")]
    if fmt != "e4m3":  # whose parts of 128 k have few bits, so that their sums are exact
        orders += [replace(orders[0], split_k=parts, split_unit=64) for parts in (2, 3, 7)]
        orders += [Entry("m16n8k8", 32, parts, 8 if parts > 1 else 0, "f32", "add") for parts in (1, 2, 5)]
    samples = [_product(fmt, 1001, each)[:5] for each in orders]
    assert len({sample.tobytes() for sample in samples}) == len(orders)
    for order, sample in zip(orders, samples, strict=True):
        assert confirmed(request, order, sample) == order
        assert confirmed(request, order, sample + 1) is None
    assert confirmed(request, None, samples[0]) is None


def test_segments_are_found_by_their_bits() -> None:
    request, one = Request("product", "tf32", "nn", 300, 300, 2048), Entry("wgmma", 0, 1, 0, "f32", "fma")
    three = replace(one, split_k=3, split_unit=32)
    assert confirmed(request, one, _product("tf32", 2048, three)) == three


def test_choices_are_matched_to_products_in_their_order() -> None:
    asked = [Request("product", "f16", "nn", size, 8, 16) for size in (1, 2, 3, 2)]
    taken = [Choice(size, 8, 16, 66, 1, "", "", 0, False) for size in (1, 3, 2)]
    assert [None if each is None else each.m for each in _matched(asked, taken)] == [1, None, 3, 2]
    assert kept(3).tolist() == [0, 1, 2]


def test_a_book_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request("product", "f16", "nn", 24, 40, 4100)
    asked, order = [request, request._replace(layout="nt")], Entry("m16n8k16", 64, 5, 8, "out", "add")
    path = tmp_path / "own.npz"
    write_book(path, asked, [order, None], gpu="H100", name="NVIDIA H100", library="cuBLAS 99", through="PyTorch 99")
    pages = Book(path)
    assert (pages.requests(), pages.find("H100", request), pages.find("H100", asked[1])) == (asked, order, None)
    monkeypatch.setenv("FASTMMA_PLAN_BOOK", str(path))
    plan = fastmma.gemm_plan(
        np.empty((24, 4100), np.float16), np.empty((4100, 40), np.float16), target="H100", preset="cublas", out_dtype="f16"
    )
    assert (plan.split_k, plan.split_unit, plan.first_tile, plan.join, plan.join_dtype) == (5, 8, 64, "workspace", "f16")
    assert "as cuBLAS 99 through PyTorch 99 on H100" in plan.source
    path.write_bytes(b"no book")
    monkeypatch.setenv("FASTMMA_PLAN_BOOK", str(tmp_path / "own.npz") + "x")
    with pytest.raises(fastmma.OperandError, match=r"FASTMMA_PLAN_BOOK: .* is no plan book"):
        fastmma.gemm_plan(np.empty((23, 4100), np.float16), np.empty((4100, 40), np.float16), preset="cublas")


@pytest.mark.gpu
def test_the_library_in_this_machine_takes_what_the_book_has(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pages = book("cublas")
    asked = pages.requests()[::500]
    found = Book(record_cublas(tmp_path / "book.npz", asked))
    gpu = next(iter(found.gpus))
    assert {each: found.find(gpu, each) for each in asked} == {each: pages.find(gpu, each) for each in asked}
