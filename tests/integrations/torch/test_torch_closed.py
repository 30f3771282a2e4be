"""Reports are closed: programs that hide a product, or a function that a GPU computes otherwise, are told from those that do not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference.torch_reports import drawn, lines  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*(Sparse|flex_attention|nested):UserWarning")  # torch's
BF16, F32 = torch.bfloat16, torch.float32


A, F = drawn(64, 64), drawn(8, 8, dtype=F32)
FLAT = ft.mm(A, A, target="H100")


@pytest.fixture
def library() -> Any:
    made = torch.library.Library("closed", "DEF")
    yield made
    made._destroy()


# operators of one's own


def test_products_in_the_body_of_an_operator_of_ones_own_are_emulated(library: Any) -> None:
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: (x @ x) @ x, "CPU")
    library.define("composite(Tensor x) -> Tensor")
    library.impl("composite", lambda x: x @ x, "CompositeImplicitAutograd")
    own = torch.library.custom_op("closed::own", lambda x: x @ x, mutates_args=(), schema="(Tensor x) -> Tensor")
    for call, count in ((torch.ops.closed.twice, 2), (torch.ops.closed.composite, 1), (own, 1)):
        for inference in (False, True):
            with ft.emulate("H100", functions="torch") as gpu, torch.inference_mode(inference):
                found = call(A)
            assert torch.equal(found, ft.mm(FLAT, A, target="H100") if count == 2 else FLAT)
            gpu.report.assert_all_emulated()
            assert gpu.report.emulated == count


def test_an_operator_of_ones_own_that_asks_not_torch_is_unseen(library: Any) -> None:
    library.define("hidden(Tensor x) -> Tensor")
    library.impl("hidden", lambda x: torch.from_numpy(x.numpy() @ x.numpy()), "CPU")
    with ft.emulate("H100", functions="torch") as gpu:
        A @ A
        torch.ops.closed.hidden(F)
    assert lines(gpu.report, "unseen") == {("unseen", "closed")}
    with pytest.raises(AssertionError, match="hidden"):
        gpu.report.assert_all_emulated(assumed=True)
    with ft.emulate("H100", functions="torch", other="error"), pytest.raises(fastmma.NotEmulatedError, match="hidden"):
        torch.ops.closed.hidden(F)


def test_compiled_operators_and_those_of_no_list_are_unseen() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantised tensors are old
        quantised, layer = torch.quantize_per_tensor(F, 0.1, 0, torch.quint8), torch.ao.nn.quantized.Linear(8, 8)
    with ft.emulate("H100", functions="torch") as gpu:
        layer(quantised)
        F.to_sparse()
    assert lines(gpu.report, "unseen") == {("unseen", "quantized"), ("unseen", "_to_sparse")}


# composites that arrive whole, or are taken apart before anybody sees them


WHOLE: dict[str, tuple[Callable[[], Any], set[tuple[str, str]]]] = {
    "multi_dot": (lambda: torch.linalg.multi_dot([A, A, A]), {("emulated", "mm")}),
    "matrix_power": (lambda: torch.matrix_power(A, 3), {("emulated", "mm")}),
    "chain_matmul": (lambda: torch.linalg.multi_dot([A, A]), {("emulated", "mm")}),
    "cov": (lambda: torch.cov(F), {("emulated", "mm"), ("passed", "sum"), ("passed", "div")}),
    "corrcoef": (lambda: torch.corrcoef(F), {("emulated", "mm"), ("passed", "sum"), ("passed", "div"), ("passed", "sqrt")}),
    "matrix_exp": (lambda: torch.matrix_exp(F), {("passed", "linalg_matrix_exp")}),
    "affine_grid": (
        lambda: functional.affine_grid(drawn(1, 2, 3, dtype=F32), [1, 1, 4, 4], align_corners=False),
        {("passed", "affine_grid_generator")},
    ),
    "conv_tbc": (lambda: torch.conv_tbc(drawn(5, 2, 3, dtype=F32), drawn(3, 3, 4, dtype=F32), F[0, :4]), {("passed", "conv_tbc")}),
    "sparse mm": (lambda: torch.sparse.mm(SPARSE, F), {("passed", "_sparse_addmm")}),
    "sampled_addmm": (lambda: torch.sparse.sampled_addmm(SPARSE.to_sparse_csr(), F, F), {("passed", "sparse_sampled_addmm")}),
    "solve": (lambda: torch.linalg.solve(F, F), {("passed", "_linalg_solve_ex")}),
    "pinv": (lambda: torch.linalg.pinv(F), {("passed", "linalg_pinv")}),
    "interpolate": (lambda: functional.interpolate(F[None, None], scale_factor=2, mode="bilinear"), {("passed", "upsample_bilinear2d")}),
    "gelu": (lambda: functional.gelu(A), {("passed", "gelu")}),
    "exp": (lambda: A.exp(), {("passed", "exp")}),
    "softmax": (lambda: A.softmax(-1), {("passed", "_softmax")}),
    "layer_norm": (lambda: functional.layer_norm(A, (64,)), {("passed", "native_layer_norm")}),
    "dropout": (lambda: functional.dropout(A), {("passed", "bernoulli_")}),
    "cosine": (lambda: functional.cosine_similarity(F, F), {("passed", "linalg_vector_norm"), ("passed", "sum")}),
    "inner": (lambda: torch.inner(F[0], F[0]), {("passed", "dot")}),
    "fft": (lambda: torch.fft.fft(F), {("passed", "_fft_r2c")}),
    "outer": (lambda: torch.outer(F[0], F[0]), set()),
}
SPARSE = F.to_sparse()


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference"])
@pytest.mark.parametrize("name", WHOLE)
def test_composites_are_told_in_inference_mode_too(name: str, inference: bool) -> None:
    call, wanted = WHOLE[name]
    with ft.emulate("H100", functions="torch") as gpu, torch.inference_mode(inference):
        call()
    assert lines(gpu.report) - {("unseen", "_to_sparse_csr")} == wanted


def test_distances_are_passed() -> None:
    far = drawn(30, 8, dtype=F32)
    for inference in (False, True):
        with ft.emulate("H100", functions="torch") as gpu, torch.inference_mode(inference):
            torch.cdist(far, far)
        assert {operator for _, operator in lines(gpu.report)} <= {"_euclidean_dist", "cdist"}
        assert gpu.report.passed == 1


CELLS = {
    "rnn_tanh": lambda: torch.nn.RNN(64, 64, dtype=BF16)(A[:4, None])[0],
    "rnn_relu": lambda: torch.nn.RNN(64, 64, nonlinearity="relu", dtype=BF16)(A[:4, None])[0],
    "gru": lambda: torch.nn.GRU(64, 64, dtype=BF16)(A[:4, None])[0],
    "lstm": lambda: torch.nn.LSTM(64, 64, dtype=BF16)(A[:4, None])[0],
    "rnn_tanh_cell": lambda: torch.nn.RNNCell(64, 64, dtype=BF16)(A),
    "gru_cell": lambda: torch.nn.GRUCell(64, 64, dtype=BF16)(A),
    "lstm_cell": lambda: torch.nn.LSTMCell(64, 64, dtype=BF16)(A)[0],
}


@pytest.mark.parametrize("name", CELLS)
def test_recurrent_layers_are_never_emulated_forward_or_backward(name: str) -> None:
    with ft.emulate("H100", functions="torch", unknown="one") as gpu:
        out = CELLS[name]()
        out.backward(torch.ones_like(out))
    with ft.emulate("H100", functions="torch", unknown="one") as inferred, torch.inference_mode():
        CELLS[name]()
    for report in (gpu.report, inferred.report):
        assert report.emulated == 0
        assert ("passed", name) in lines(report)
    with ft.emulate("H100", functions="torch", other="error"), pytest.raises(fastmma.NotEmulatedError, match=r"cuDNN|biases"):
        CELLS[name]()


def attended(**options: Any) -> torch.Tensor:
    q = drawn(1, 2, 16, 8).requires_grad_()
    out = functional.scaled_dot_product_attention(q, q, q, **options)
    out.backward(torch.ones_like(out))
    return out.detach()


def test_math_attention_that_a_gpu_would_fuse_is_assumed() -> None:
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    mask = torch.zeros(16, 16, dtype=BF16, requires_grad=True)  # whose gradient torch's CPU kernel has not
    parts = {(16, 16, 8): 1, (16, 8, 16): 1, (8, 16, 16): 1}
    try:
        with ft.emulate("H100", functions="torch", plans=parts) as gpu:
            attended(attn_mask=mask)
        assert gpu.report.emulated == 0
        assert ("assumed", "_scaled_dot_product_attention_math") in lines(gpu.report)
        assert {operator for status, operator in lines(gpu.report) if status == "assumed"} >= {"bmm"}
        with ft.emulate("H100", functions="torch", plans=parts) as gpu, sdpa_kernel(SDPBackend.MATH):
            attended(attn_mask=mask)  # as it is computed on a GPU, too
        assert (gpu.report.emulated, gpu.report.assumed) == (6, 0)
        with ft.emulate("H100", functions="torch", attention="pass") as gpu:
            functional.scaled_dot_product_attention(*[drawn(1, 2, 16, 8)] * 3, attn_mask=mask)
        assert lines(gpu.report) == {("passed", "_scaled_dot_product_attention_math")}
        with ft.emulate("H100", functions="torch", attention="error"), pytest.raises(fastmma.NotEmulatedError, match="attention"):
            functional.scaled_dot_product_attention(*[drawn(1, 2, 16, 8)] * 3, attn_mask=mask)
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def test_what_has_a_kernel_of_its_own_is_not_taken_apart() -> None:
    x = drawn(9, 99).requires_grad_()
    functional.silu(x).backward(torch.ones_like(x))
    plain, x.grad = x.grad, None
    with ft.emulate("H100", functions="torch") as gpu:
        functional.silu(x).backward(torch.ones_like(x))
    assert lines(gpu.report) == {("passed", "silu"), ("passed", "silu_backward")}
    assert torch.equal(x.grad, plain)
