"""Plan books that are recorded: what is asked of cuBLASLt, samples that confirm orders, and books that are written and looked up."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from fastmma.cublas import Choice, plan
from reference import fake_cublaslt
from reference.fake_cublaslt import FakeCublasLt, FakeDriver

import fastmma
from fastmma.cli import record as record_module
from fastmma.cli.app import app
from fastmma.products.cublas.book import Book, shipped_book
from fastmma.products.cublas.rows import Product
from fastmma.products.lanes_plan import LanesPlan
from fastmma.study.linear_layers import linear_layers
from fastmma.verification.cublas_record import Outcome, record_cublas
from fastmma.verification.cublas_requests import Request, read_rows, read_shapes, requests_of_layers
from fastmma.verification.cublas_samples import draw_sample, kept
from fastmma.verification.cublaslt import CublasLt
from fastmma.verification.cuda_driver import Driver

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES: dict[str, Any] = {"bf16": BF16, "f16": np.float16, "f32": np.float32, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn}


def chooses(product: Product) -> Choice | None:
    """What the library of these tests runs: kernels on wgmma, CUTLASS's, chains of fma, lanes, and one that no table has."""
    if product.n == 77:
        return None
    if product.n == 99:
        return Choice(74)
    if product.fmt == "f32":
        return Choice(13, custom=92) if product.m == 1 else Choice(55, tile=11, split_k=4, reduction=2, stages=31)
    if product.fmt == "tf32":
        return Choice(43, tile=20, split_k=-1, reduction=2, stages=34, cluster=2, workspace=0)
    if product.n % 8 or product.k % 8:
        return Choice(24, tile=15, split_k=3, reduction=2)
    stages = 36 if product.fmt == "e4m3" else 35
    return Choice(66, tile=10, split_k=2 if product.k > 1000 else 1, reduction=2 if product.k > 1000 else 0, stages=stages, cluster=4)


REQUESTS = [
    Request("bf16", "nt", 5, 64, 2048),
    Request("bf16", "nt", 6, 64, 2048),
    Request("bf16", "nt", 6, 64, 2048, biased=True),
    Request("bf16", "nn", 7, 128, 512),
    Request("f16", "tn", 40, 56, 1200),
    Request("bf16", "nt", 9, 33, 1000),
    Request("bf16", "nt", 9, 99, 1000),
    Request("bf16", "nt", 9, 77, 1000),
    Request("f32", "nt", 12, 64, 256),
    Request("f32", "nt", 1, 64, 256),
    Request("tf32", "nt", 16, 64, 256),
    Request("e4m3", "nt", 16, 64, 256),
    Request("e4m3fast", "nt", 16, 64, 2048),
    Request("bf16", "nn", 8, 8, 64, stack=3),
]
KNOWN = len(REQUESTS) - 2


def asker(library: FakeCublasLt, gpu: str = "NVIDIA B200", capability: tuple[int, int] = (10, 0)) -> CublasLt:
    return CublasLt(library, Driver(FakeDriver(gpu, capability)))


def pair(request: Request, stacked: bool = True) -> tuple[Any, Any]:
    """Operands that nobody reads."""
    dtype = DTYPES[request.product.fmt]
    stack = (request.stack,) if request.stack > 1 and stacked else ()
    shapes = (request.m, request.k), (request.k, request.n)
    return tuple(
        np.zeros((*stack, *(shape if side == "n" else shape[::-1])), dtype).swapaxes(-1, -2 if side == "t" else -1)
        for shape, side in zip(shapes, request.layout, strict=True)
    )


def looked_up(request: Request, path: Path, target: str) -> Any:
    bias = {"bias": np.zeros(request.n, BF16)} if request.biased else {}
    options = {"tf32": request.type == "tf32", "use_fast_accum": request.type == "e4m3fast", "out_dtype": request.product.out}
    return plan(*pair(request), target=target, plans=path, **options, **bias)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of an H200 with a library that no table is about; its kernels add as those of 13.1 do."""
    path = tmp_path / "book.npz"
    found = record_cublas(path, REQUESTS, asker(FakeCublasLt(chooses), "NVIDIA H200", (9, 0)))
    assert found == Outcome(len(REQUESTS), KNOWN, found.kinds, found.kinds - 2, found.samples)
    return path


def test_what_is_recorded_is_looked_up(book: Path) -> None:
    pages, levels = Book(book), Counter[str]()
    assert (len(pages), pages.gpu) == (len(REQUESTS), "H200")
    assert str(pages) == "cuBLASLt 12.8.5 by cublasLtMatmulAlgoGetHeuristic with the workspace of PyTorch 2.11 on H200"
    for request in REQUESTS:
        found = pages.find(request.type, request.product, stack=request.stack, biased=request.biased)
        assert found is not None
        expected = chooses(request.product)
        assert found.choice == (Choice(0) if expected is None else expected)
        assert (found.samples > 0) == (expected is not None and expected.algo != 74)
        if not found.samples:
            with pytest.raises(fastmma.OperandError, match=r"adds in an order that no plan has \(cuBLASLt 12\.8\.5 by"):
                looked_up(request, book, "H200")
            continue
        done = looked_up(request, book, "H200")
        assert isinstance(done, LanesPlan) == (found.choice.algo == 13)
        assert f"as {pages}; confirmed by {found.samples} samples" in str(done)
        levels[done.evidence.level] += 1
    assert levels == {"recorded": KNOWN}
    with pytest.raises(fastmma.OperandError, match="f16 nt of M = 3, N = 64, K = 64 is not recorded in"):
        looked_up(Request("f16", "nt", 3, 64, 64), book, "H200")
    assert looked_up(Request("bf16", "nt", 9, 33, 1000), book, "H200").split_k == 3


def test_the_variable_names_a_book(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_PLAN_BOOK", str(book))
    a, b = pair(Request("bf16", "nt", 5, 64, 2048))
    found = fastmma.gemm_plan(a, b, target="H200", preset="cublas", out_dtype="bf16", unknown="refuse")
    assert (found.split_k, found.evidence.level) == (2, "recorded")  # type: ignore[union-attr]
    assert plan(a, b, out_dtype="bf16", version="12.8").split_k == 2  # type: ignore[union-attr]
    stack = pair(Request("bf16", "nn", 8, 8, 64, stack=3))
    assert fastmma.gemm_plan(*stack, target="H200", preset="cublas", out_dtype="bf16").evidence.level == "recorded"  # type: ignore[union-attr]
    for request, words in ((REQUESTS[6], "no plan has"), (Request("bf16", "nt", 4, 64, 2048), "not recorded on H200")):
        with pytest.raises(fastmma.OperandError, match=words):
            fastmma.gemm_plan(*pair(request), target="H200", preset="cublas", out_dtype="bf16", unknown="refuse")
    with pytest.raises(fastmma.OperandError, match=r"the file has plans of cuBLASLt 12\.8\.5 on H200, not of 12\.6 on H200"):
        plan(a, b, out_dtype="bf16", version="12.6")
    with pytest.raises(fastmma.OperandError, match="is not recorded"):
        plan(a, b, out_dtype="bf16", target="H100")
    lanes = fastmma.gemm_plan(*pair(REQUESTS[9]), target="H200", preset="cublas", instruction="fma.rn.f32")
    assert "shares k among lanes" in str(lanes.evidence)
    assert isinstance(plan(*pair(REQUESTS[9])), LanesPlan)
    assert plan(*pair(Request("f16", "nt", 16, 4096, 4096)), out_dtype="f16", unknown="one").evidence.level == "assumed"  # type: ignore[union-attr]


@pytest.mark.parametrize(("where", "version"), [("H100", "13.1"), ("H200", "12.6"), ("B200", "13.1")])
def test_a_book_of_another_gpu_or_version_is_refused(where: str, version: str, book: Path) -> None:
    with pytest.raises(fastmma.OperandError, match=rf"the file has plans of cuBLASLt 12\.8\.5 on H200, not of {version} on {where}"):
        plan(*pair(REQUESTS[0]), target=where, version=version, plans=book)


def test_orders_that_samples_contradict_are_not_known(tmp_path: Path) -> None:
    """The library of this test adds one part more than it says."""
    requests = [Request("bf16", "nt", 5, 64, 2048), Request("bf16", "nt", 7, 64, 2048), Request("bf16", "nn", 5, 64, 512)]
    library = FakeCublasLt(chooses, adds_by=lambda choice: fake_cublaslt.several_parts(choice) if choice.split_k > 1 else choice)
    found = record_cublas(tmp_path / "book.npz", requests, asker(library, "H200", (9, 0)))
    assert found == Outcome(products=3, confirmed=1, kinds=2, kinds_confirmed=1, samples=1)
    with pytest.raises(fastmma.OperandError, match="algo 66, tile 10, split_k 2"):
        looked_up(requests[0], tmp_path / "book.npz", "H200")
    assert looked_up(requests[2], tmp_path / "book.npz", "H200").evidence.level == "recorded"


def test_a_gpu_without_a_table_has_what_samples_confirm(tmp_path: Path) -> None:
    """A B200 adds chains of fma as the table of an H200 says, in the library of this test."""
    requests = [Request("bf16", "nt", 3, 24, 1000), Request("f32", "nt", 12, 64, 256)]
    found = record_cublas(tmp_path / "book.npz", requests, asker(FakeCublasLt(chooses)))
    assert found.products == 2
    done = looked_up(requests[1], tmp_path / "book.npz", "B200")
    assert (done.target, done.evidence.level, done.dealt) == ("sm_100a", "recorded", 8)


def test_the_library_is_asked_as_pytorch_asks_it() -> None:
    library = FakeCublasLt(chooses)
    hopper, ada = asker(library, "NVIDIA H200", (9, 0)), asker(library, "NVIDIA L40S", (8, 9))
    for request in (REQUESTS[0], REQUESTS[2], REQUESTS[11]):
        assert hopper.ask(request) == chooses(request.product)
    ada.ask(REQUESTS[0])
    assert [space for _, space in library.asked] == [32 << 20, 1 << 20, 1 << 20, 8_519_680]
    assert [product for product, _ in library.asked[:3]] == [REQUESTS[0].product, REQUESTS[2].product, REQUESTS[11].product]
    assert CublasLt(library, Driver(FakeDriver()), 1000).how.endswith("1000 bytes of workspace")
    assert hopper.ask(REQUESTS[7]) is None


def test_what_the_library_refuses_is_named() -> None:
    library = FakeCublasLt(chooses)
    library.cublasLtMatmulDescCreate = lambda *_: 15  # type: ignore[attr-defined]
    with pytest.raises(fastmma.BackendError, match="cublasLtMatmulDescCreate answers 15"):
        asker(library).ask(REQUESTS[0])


def test_matrices_with_gaps_are_not_those_that_were_recorded(book: Path) -> None:
    (a, b), request = pair(REQUESTS[0]), REQUESTS[0]
    wide = np.zeros((request.m, request.k + 8), BF16)[:, : request.k]
    assert plan(a, b, plans=book, target="H200", out_dtype="bf16").evidence.level == "recorded"  # type: ignore[union-attr]
    for unknown in ("refuse", "one"):
        with pytest.raises(fastmma.OperandError, match="not recorded in"):
            plan(wide, b, plans=book, target="H200", out_dtype="bf16", unknown=unknown)


def test_samples_cancel() -> None:
    for request in REQUESTS:
        sample = draw_sample(request)
        assert sample.a.shape == (len(kept(request.m)), request.k)
        assert (sample.bias is not None) == request.biased
    assert kept(3).tolist() == [0, 1, 2]
    sums = draw_sample(REQUESTS[0]).a.astype(np.float64) @ draw_sample(REQUESTS[0]).b.T.astype(np.float64)
    assert not sums.any()


def test_rows_are_read() -> None:
    assert read_rows("5, 1-3,10-30:10") == [1, 2, 3, 5, 10, 20, 30]
    for wrong in ("", "0", "3-1", "1-9:0x", "-4", "1.5", "1-99999999999", "1-2147483647"):
        with pytest.raises(fastmma.OperandError, match="rows must be numbers from 1"):
            read_rows(wrong)


def test_shapes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    lines = "M,N,K,type,layout", "16,4096,1024,bf16,nt", "", "1 8 9 f32 nn  # thin", "16 32 64 e4m3 nt bias", "2,3,4,f16,tt,5"
    path.write_text("\n".join((*lines, "2,3,4,f16,tt,bias,5")))
    assert read_shapes(path) == [
        Request("bf16", "nt", 16, 4096, 1024),
        Request("f32", "nn", 1, 8, 9),
        Request("e4m3", "nt", 16, 32, 64, biased=True),
        Request("f16", "tt", 2, 3, 4, stack=5),
        Request("f16", "tt", 2, 3, 4, biased=True, stack=5),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("16 32 bf16", "a shape has M N K type layout"),
        ("0 32 64 bf16 nt", "M must be a number from 1"),
        ("16 32 99999999999 bf16 nt", "K must be a number from 1"),
        ("16 32 64 bf17 nt", "the type must be one of bf16"),
        ("16 32 64 bf16 nx", "the layout must be one of nn"),
        ("16 32 64 bf16 nt bias 3 4", "ends with bias and the batch"),
        ("16 32 64 bf16 nt twice", "batch must be a number"),
        ("16 33 64 e4m3 nt", "in multiples of 16"),
        ("16 32 64 e4m3 nn", "in layout nt"),
        ("# nothing", "has no shapes"),
    ],
)
def test_shapes_that_are_none_are_named(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.txt"
    path.write_text(f"{line}\n")
    with pytest.raises(fastmma.OperandError, match=words) as caught:
        read_shapes(path)
    assert str(caught.value).startswith(str(path))


def test_files_that_are_no_shapes(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(b"\xff\xfe16 32")
    for name, words in (("raw", "no text in UTF-8"), ("none", "no such file"), (".", "is a folder")):
        with pytest.raises(fastmma.OperandError, match=words):
            read_shapes(tmp_path / name)


CONFIG = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 96, "vocab_size": 128}


def test_layers_of_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    q, kv, qkv = (32, 64), (16, 64), (64, 64)
    assert linear_layers(tmp_path) == sorted([q, kv, qkv, (64, 32), (96, 64), (192, 64), (64, 96), (128, 64)])
    experts = CONFIG | {"moe_intermediate_size": 24, "num_experts": 12}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": experts, "hidden_size": "many"}))
    assert {(24, 64), (48, 64), (64, 24), (12, 64)} <= set(linear_layers(tmp_path))
    for text, words in (("{}", "names no linear layers"), ("[1]", "no object of JSON"), ("{", "no readable JSON")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(fastmma.OperandError, match=words):
            linear_layers(tmp_path)
    (tmp_path / "config.json").unlink()
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(fastmma.OperandError, match=r"has neither config\.json nor"):
            linear_layers(folder)


def test_layers_of_tensors(tmp_path: Path) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy")
    tensors = {
        "model.embed_tokens.weight": (128, 64),
        "model.layers.0.mlp.up_proj.weight": (96, 64),
        "model.layers.0.mlp.up_proj.bias": (96,),
        "model.layers.0.mlp.experts.gate_up_proj": (4, 48, 64),
        "lm_head.weight": (128, 64),
    }
    numpy_files.save_file({name: np.zeros(shape, np.float32) for name, shape in tensors.items()}, tmp_path / "model.safetensors")
    assert linear_layers(tmp_path) == [(48, 64), (96, 64), (128, 64)]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    numpy_files.save_file({"h.0.attn.c_attn.weight": np.zeros((64, 192), np.float32)}, tmp_path / "model.safetensors")
    assert linear_layers(tmp_path) == [(192, 64)]


def test_products_of_layers_are_those_forwards_and_backwards() -> None:
    found = requests_of_layers([record_module.Layer(32, 48)], [5, 16], ["bf16", "e4m3"])
    assert len(found) == len(set(found)) == 8 + 7
    assert Request("e4m3", "nt", 32, 48, 16) in found
    assert Request("e4m3", "nt", 32, 48, 5) not in found


def command(*words: str) -> Any:
    return CliRunner().invoke(app, ["record", *words])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "shapes.txt").write_text("9 99 1000 bf16 nt\n")
    library, path = FakeCublasLt(chooses, 130100), tmp_path / "book.npz"
    monkeypatch.setattr(record_module, "load_library", lambda _path: library)
    monkeypatch.setattr(record_module, "load_driver", lambda: FakeDriver("NVIDIA H200", (9, 0)))
    given = "--cublas", "--model", str(tmp_path), "--shapes", str(tmp_path / "shapes.txt"), "--rows", "1-3"
    done = command(str(path), *given, "--type", "bf16", "--type", "f16")
    assert done.exit_code == 0, done.output
    assert "products of cuBLASLt 13.1.0 on NVIDIA H200" in done.output
    assert "1 are of kinds whose order no plan has" in done.output
    assert len(Book(path)) == len(library.asked) - library.runs
    assert looked_up(Request("f16", "nt", 2, 96, 64), path, "H200").evidence.level == "recorded"
    for wrong, words in (
        (("--cublas",), "needs --model or --shapes"),
        (("--model", str(tmp_path)), "are for --cublas"),
        ((*given, "--type", "f64"), "--type must be one of"),
    ):
        assert words in " ".join(command(str(path), *wrong).output.split()).replace("│ ", "")


def test_books_are_in_order_and_whole(book: Path) -> None:
    pages = Book(book)
    assert len(set(pages.products())) == len(REQUESTS)
    assert pages.find("bf16", replace_sizes(REQUESTS[0].product, m=4)) is None
    assert pages.find("bf16", REQUESTS[3].product, stack=2) is None
    assert pages.find("f16", REQUESTS[0].product) is None
    shipped = shipped_book("H200")
    assert shipped is not None
    assert shipped_book("A100") is None


def replace_sizes(product: Product, **sizes: int) -> Product:
    return product._replace(**sizes)


def test_a_choice_that_changes_between_asking_and_running_is_not_confirmed(tmp_path: Path) -> None:
    answers = iter(range(100))
    library = FakeCublasLt(lambda product: replace(chooses(product), tile=next(answers)))  # type: ignore[type-var, arg-type]
    found = record_cublas(tmp_path / "book.npz", REQUESTS[:1], asker(library, "H200", (9, 0)))
    assert found.confirmed == 0


@pytest.mark.gpu
def test_the_library_in_this_machine_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "shapes.txt").write_text("".join(f"{m} 4096 4096 bf16 nt\n" for m in range(1, 65)))
    done = command(str(tmp_path / "book.npz"), "--cublas", "--shapes", str(tmp_path / "shapes.txt"))
    assert done.exit_code == 0, done.output
    assert len(Book(tmp_path / "book.npz")) == 64
