"""torch's products under emulation, against fastmma's own calls and the exact reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402
from fastmma.torch.arrays import DTYPES  # noqa: E402
from fastmma.torch.operators import OPERATORS  # noqa: E402

HALVES = (torch.bfloat16, torch.float16)
aten = torch.ops.aten


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32) * np.exp2(rng.integers(-6, 6, shape)).astype(np.float32)).to(
        dtype
    )


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def exact(a: torch.Tensor, b: torch.Tensor, out: torch.dtype, **options: Any) -> bytes:
    """What the exact reference says, as cuBLAS on an H100 rounds it."""
    given = {name: ft.to_numpy(value) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    multiply = fastmma.gemm if a.dim() == 2 else fastmma.matmul
    found = multiply(ft.to_numpy(a), ft.to_numpy(b), target="H100", preset="cublas", out_dtype=DTYPES[out], backend="reference", **given)
    return found.tobytes()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_product_has_the_bits_of_the_reference(dtype: torch.dtype) -> None:
    a, b, w = drawn(0, 8, 40, dtype=dtype), drawn(1, 40, 16, dtype=dtype), drawn(2, 16, 40, dtype=dtype)
    c, bias, x, y = (
        drawn(3, 8, 16, dtype=dtype),
        drawn(4, 16, dtype=dtype),
        drawn(5, 3, 8, 24, dtype=dtype),
        drawn(6, 3, 24, 8, dtype=dtype),
    )
    z = drawn(7, 3, 8, 8, dtype=dtype)
    with ft.emulate("H100", unknown="one") as gpu:
        found = {
            "mm": a @ b,
            "transposed": a @ w.t(),
            "wide": torch.mm(a, b, out_dtype=torch.float32),
            "linear": torch.nn.functional.linear(a, w, bias),
            "three dimensions": torch.nn.functional.linear(a.view(2, 4, 40), w),
            "addmm": torch.addmm(c, a, b),
            "alpha": torch.addmm(c, a, b, alpha=0.3),
            "beta": torch.addmm(c, a, b, beta=0.5, alpha=1.7),
            "no beta": torch.addmm(torch.full_like(c, torch.nan), a, b, beta=0),
            "scaled bias": torch.addmm(bias, a, b, beta=0.5),
            "in place": c.clone().addmm_(a, b),
            "out": torch.mm(a, b, out=torch.empty(0, dtype=dtype)),
            "bmm": x @ y,
            "baddbmm": torch.baddbmm(z, x, y, beta=0.5),
            "relu": torch._addmm_activation(bias, a, b),
            "mv": torch.mv(a, w[0]),
            "addmv": torch.addmv(c[:, 0], a, w[0]),
            "einsum": torch.einsum("ik,kj->ij", a, b),
        }
    half = torch.float32
    wanted = {
        "mm": exact(a, b, dtype),
        "transposed": exact(a, w.t(), dtype),
        "wide": exact(a, b, half),
        "linear": exact(a, w.t(), dtype, bias=bias),
        "three dimensions": exact(a, w.t(), dtype),
        "addmm": exact(a, b, dtype, c=c),
        "alpha": exact(a, b, dtype, c=c, alpha=0.3),
        "beta": exact(a, b, dtype, c=c, beta=0.5, alpha=1.7),
        "no beta": exact(a, b, dtype),
        "scaled bias": exact(a, b, dtype, c=bias.expand(8, 16), beta=0.5),
        "in place": exact(a, b, dtype, c=c),
        "out": exact(a, b, dtype),
        "bmm": exact(x, y, dtype),
        "baddbmm": exact(x, y, dtype, c=z, beta=0.5),
        "relu": bits(torch.relu(ft.addmm(bias, a, b, target="H100"))),
        "mv": exact(a, w[:1].t(), dtype),
        "addmv": exact(a, w[:1].t(), dtype, c=c[:, :1]),
        "einsum": exact(a, b, dtype),
    }
    assert [name for name, tensor in found.items() if bits(tensor) != wanted[name]] == []
    gpu.report.assert_all_emulated(assumed=True)
    assert {line.operator for line, _ in gpu.report.lines("assumed")} == {"aten.addmv.default"}
    assert gpu.report.emulated + gpu.report.assumed == len(found)


def test_shapes_without_elements_and_of_one_row() -> None:
    with ft.emulate("H100", unknown="one"):
        for m, k, n in ((0, 8, 8), (8, 0, 8), (8, 8, 0), (1, 8, 8), (8, 1, 8)):
            a, b = drawn(m, m, k), drawn(n, k, n)
            assert bits(a @ b) == exact(a, b, torch.bfloat16), (m, k, n)
        assert (drawn(0, 0, 4, 8) @ drawn(1, 0, 8, 4)).shape == (0, 4, 4)


def test_gradients_are_products_too() -> None:
    x, w = drawn(0, 16, 32).requires_grad_(), drawn(1, 24, 32).requires_grad_()
    with ft.emulate("H100", functions="torch") as gpu:
        y = torch.nn.functional.linear(x, w)
        (y.float() ** 2).sum().backward()
    grad = (2 * y.detach().float()).to(torch.bfloat16)
    assert bits(x.grad) == exact(grad, w.detach(), torch.bfloat16)
    assert bits(w.grad) == exact(grad.t(), x.detach(), torch.bfloat16)
    assert gpu.report.emulated == 3


def test_tf32_follows_the_settings_of_torch() -> None:
    a, b = drawn(0, 512, 1024, dtype=torch.float32)[:64], drawn(1, 1024, 64, dtype=torch.float32)
    precision = torch.backends.cuda.matmul.fp32_precision
    try:
        with ft.emulate("H100", unknown="one") as gpu:
            torch.backends.cuda.matmul.fp32_precision = "ieee"
            ieee = a @ b
            torch.backends.cuda.matmul.fp32_precision = "tf32"
            found = a @ b
    finally:
        torch.backends.cuda.matmul.fp32_precision = precision
    assert (gpu.report.passed, gpu.report.emulated + gpu.report.assumed) == (0, 2)
    plan = fastmma.cublas.plan(a.numpy(), b.numpy(), target="H100")
    assert bits(ieee) == fastmma.gemm(a.numpy(), b.numpy(), plan=plan).tobytes()
    tf32 = fastmma.instruction("wgmma.m64n256k8.f32.tf32.tf32")
    wanted = fastmma.gemm(a.numpy(), b.numpy(), instruction=tf32, target="H100", preset="cublas", backend="numba")
    assert found.numpy().tobytes() == wanted.tobytes()
    with ft.emulate("H100", fp32="tf32", unknown="one"):
        assert bits(a @ b) == bits(found)


def test_bytes_are_summed_exactly_and_checked_as_on_a_gpu() -> None:
    a, b = (torch.from_numpy(np.random.default_rng(seed).integers(-128, 128, (32, 32)).astype(np.int8)) for seed in range(2))
    with ft.emulate("H100"):
        assert (torch._int_mm(a, b) == a.int() @ b.int()).all()
        with pytest.raises(RuntimeError, match="greater than 16"):
            torch._int_mm(a[:8], b)
        assert torch._int_mm(a.to(torch.uint8), b).dtype is torch.int32  # a CPU's own product
    with pytest.raises(fastmma.NotEmulatedError):
        ft.int_mm(a.to(torch.uint8), b)


@pytest.mark.parametrize(
    ("m", "n", "k", "layout", "gaps", "starts", "accepted"),
    [  # of an H200's answers: gaps after rows or columns, and the first byte of a and of b
        (17, 24, 8, "nn", (0, 0), (0, 0), True),
        (17, 32, 120, "nn", (0, 0), (0, 0), False),
        (17, 32, 128, "nn", (0, 0), (0, 0), True),
        (64, 72, 8, "nn", (0, 0), (0, 0), True),
        (17, 72, 8, "nt", (0, 0), (0, 0), True),
        (17, 72, 8, "nt", (2, 0), (0, 0), False),
        (17, 72, 8, "nt", (0, 0), (0, 1), False),
        (20, 24, 8, "tn", (0, 0), (0, 0), True),
        (20, 32, 8, "tn", (0, 0), (0, 0), False),
        (24, 40, 8, "tn", (0, 0), (0, 0), True),
        (47, 8, 912, "tn", (1, 4), (16, 8), True),
        (24, 40, 8, "tt", (0, 0), (0, 0), False),
        (24, 64, 8, "tt", (0, 0), (0, 0), True),
        (132, 240, 128, "tt", (16, 0), (0, 8), True),
        (23, 32, 1248, "tt", (1, 4), (16, 0), False),
    ],
)
def test_bytes_that_cublas_has_no_kernel_for_are_refused(
    m: int, n: int, k: int, layout: str, gaps: tuple[int, int], starts: tuple[int, int], accepted: bool
) -> None:
    storage = torch.from_numpy(np.random.default_rng(3).integers(-128, 128, 400_000).astype(np.int8))

    def lie(rows: int, columns: int, name: str, gap: int, start: int) -> torch.Tensor:
        lead = (rows if name == "t" else columns) + gap
        return storage.as_strided((rows, columns), (1, lead) if name == "t" else (lead, 1), start)

    a, b = lie(m, k, layout[0], gaps[0], starts[0]), lie(k, n, layout[1], gaps[1], starts[1])
    with ft.emulate("H200"):
        if accepted:
            assert (torch._int_mm(a, b) == a.int() @ b.int()).all()
        else:
            with pytest.raises(RuntimeError, match="CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul with transpose_mat1"):
                torch._int_mm(a, b)


def test_groups_are_products_of_their_own() -> None:
    a, b = drawn(0, 64, 32), drawn(1, 4, 32, 16)
    offs = torch.tensor([8, 8, 24, 64], dtype=torch.int32)
    with ft.emulate("H100") as gpu:
        found = torch.nn.functional.grouped_mm(a, b, offs=offs)
    for group, (start, stop) in enumerate(((0, 8), (8, 8), (8, 24), (24, 64))):
        assert bits(found[start:stop]) == exact(a[start:stop], b[group], torch.bfloat16)
    gpu.report.assert_all_emulated()
    assert bits(ft.grouped_mm(a, b, offs=offs)) == bits(found)
    by_k = ft.grouped_mm(a.t(), b[0].new_ones(64, 16), offs=offs)
    assert bits(by_k[1]) == bits(torch.zeros(32, 16, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda a: a @ a[:5], RuntimeError),
        (lambda a: torch.mm(a, a.float()), RuntimeError),
        (lambda a: torch.addmm(a[:3], a, a), RuntimeError),
        (lambda a: torch.mm(a, a, out=torch.empty(8, 8)), RuntimeError),
        (lambda a: torch.bmm(a[None], a), RuntimeError),
    ],
)
def test_wrong_calls_are_torchs_errors(call: Any, error: type[Exception]) -> None:
    a = drawn(0, 8, 8)
    with ft.emulate("H100"), pytest.raises(error):
        call(a)


def test_every_form_of_an_operator_is_in_the_table() -> None:
    for name in ("mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_"):
        packet = getattr(aten, name)
        assert {getattr(packet, overload) for overload in packet.overloads()} <= set(OPERATORS), name


@pytest.mark.parametrize("target", ["A100", "L40S", "B200", "RTX 5090", "T4"])
def test_other_gpus_have_their_own_bits(target: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.standard_normal((16, 64)).astype(np.float16)) for _ in range(2))
    found = ft.mm(a, b.t(), out_dtype=torch.float32, target=target, unknown="one")
    assert found.numpy().tobytes() == fastmma.gemm(a.numpy(), b.numpy().T, target=target).tobytes()
