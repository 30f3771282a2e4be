"""What torch does behind a mode's back: each of these once hid a product, changed bits, or stopped a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*(nested tensors|Sparse CSR):UserWarning")  # torch's own
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def drawn(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    rng = np.random.default_rng(shape)
    return torch.from_numpy((rng.standard_normal(shape) * np.exp2(rng.integers(-14, 1, shape))).astype(np.float32)).to(dtype)


A = drawn(64, 2048)


class Seen(TorchDispatchMode):
    """The names of the operators that reach torch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__.partition(".")[0])
        return func(*args, **(kwargs or {}))


LSTM = torch.nn.LSTM(4, 4)
LAYER = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True, dtype=BF16).eval()
WIDE = drawn(4, 4, dtype=torch.float64)
# what arrives whole in inference mode, and what is not known in any
WHOLE: dict[str, Callable[[], torch.Tensor]] = {
    "bilinear": lambda: functional.bilinear(A[:4, :8], A[:4, :8], drawn(3, 8, 8)),
    "cdist": lambda: torch.cdist(A[:32, :64].float(), A[:32, :64].float(), compute_mode="use_mm_for_euclid_dist"),
    "conv_transpose2d": lambda: functional.conv_transpose2d(drawn(1, 3, 8, 8), drawn(3, 4, 3, 3)),
    "lstm": lambda: LSTM(drawn(2, 1, 4, dtype=F32))[0],
    "_transformer_encoder_layer_fwd": lambda: LAYER(drawn(2, 8, 16)),
}
UNKNOWN: dict[str, Callable[[], torch.Tensor]] = {
    "conv": WHOLE["conv_transpose2d"],
    "mm": lambda: WIDE @ WIDE,
    "dot": lambda: torch.dot(A[0], A[0]),
    "addmm_activation": lambda: torch._addmm_activation(A[0, :64], A, A.t(), alpha=2, use_gelu=True),
    "lstm": WHOLE["lstm"],
}


@pytest.mark.parametrize(
    ("name", "call", "inference"), [*((*each, True) for each in WHOLE.items()), *((*each, False) for each in UNKNOWN.items())]
)
def test_what_is_not_known_is_passed_told_or_refused(name: str, call: Callable[[], torch.Tensor], inference: bool) -> None:
    with torch.inference_mode(inference):
        torch.manual_seed(0)
        plain = call()
        with ft.emulate("H100") as gpu:
            torch.manual_seed(0)
            assert torch.equal(call(), plain)
        assert any(name.split()[0] in line.operator for line, _ in gpu.report.lines("passed")), str(gpu.report)
        with pytest.raises(AssertionError, match="not emulated"):
            gpu.report.assert_all_emulated()
        with ft.emulate("H100", other="error"), pytest.raises(fastmma.NotEmulatedError):
            call()
        with ft.emulate("H100", other="warn"), pytest.warns(UserWarning, match="not emulated"):
            call()


def test_a_transformer_layer_without_its_fast_path_is_emulated() -> None:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ft.emulate("H100", unknown="one", functions="torch") as gpu:
            wanted = LAYER(drawn(2, 8, 16)).detach()
            with torch.inference_mode():
                assert torch.equal(LAYER(drawn(2, 8, 16)), wanted)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    passed = {line.operator.split(".")[1] for line, _ in gpu.report.lines("passed")}
    assert passed == {"bmm", "_softmax", "native_layer_norm"}  # bmm of float32, of attention taken apart
    assert gpu.report.emulated + gpu.report.assumed == 8 + 2


def test_pooling_is_no_product_and_recurrent_layers_and_convolutions_are_told_backward_too() -> None:
    image = drawn(1, 3, 8, 8).requires_grad_()
    with ft.emulate("H100", other="error"):
        functional.max_pool2d(functional.avg_pool2d(image, 2), 2).sum().backward()
    with ft.emulate("H100") as gpu:
        functional.conv_transpose2d(image, drawn(3, 4, 3, 3)).sum().backward()
        torch.nn.GRU(4, 4, dtype=torch.float64)(drawn(2, 1, 4, dtype=torch.float64))[0].sum().backward()
    told = " ".join(line.operator for line, _ in gpu.report.lines("passed"))
    assert "convolution.default" in told
    assert "convolution_backward" in told
    assert "mm" in told  # a GRU's own, of float64


def test_epilogues_are_inside_the_product() -> None:
    w, bias, c = drawn(16, 2048), drawn(16), drawn(64, 16)
    calls = [
        lambda: functional.linear(A, w, bias),
        lambda: torch.addmm(bias, A, w.t(), alpha=0.3),
        lambda: torch.addmm(c, A, w.t(), beta=0.5),
    ]
    for call in calls:
        with Seen() as torchs, ft.emulate("H100") as gpu:
            call()
        assert not {"add", "add_", "mul", "mul_", "addmm", "mm"} & set(torchs.names), torchs.names
        assert gpu.report.emulated == 1


@pytest.mark.parametrize("dtype", [BF16, F16, F32, torch.float8_e4m3fn, torch.int8], ids=str)
def test_storages_of_operands_and_results_stay_resizable(dtype: torch.dtype) -> None:
    a, b = (torch.ones(32, 32).to(dtype) for _ in "ab")
    one = torch.tensor(1.0)
    with ft.emulate("H100", fp32="tf32", unknown="one") as gpu:
        if dtype is torch.int8:
            result = torch._int_mm(a, b)
        elif dtype.itemsize == 1:
            result = torch._scaled_mm(a, b.t(), one, one, out_dtype=BF16)
        else:
            result = torch.addmm(torch.ones(32, dtype=dtype), a, b)
    gpu.report.assert_all_emulated(assumed=True)
    for tensor in (a, b, result):
        ft.to_numpy(tensor)
        for size in (0, 8192):  # as FSDP2 frees and gathers
            tensor.untyped_storage().resize_(size)
            assert tensor.untyped_storage().size() == size


def test_negated_views_are_resolved_and_other_layouts_are_torchs() -> None:
    number = torch.complex(A[:, :64].float(), A[:, 64:128].float())
    lazy = number.conj().imag
    assert lazy.is_neg()
    with ft.emulate("H100", fp32="tf32", unknown="one"):
        assert torch.equal(lazy @ lazy.t(), lazy.resolve_neg() @ lazy.resolve_neg().t())
    sparse = torch.eye(64).to_sparse()
    calls = [
        lambda: number @ number,
        lambda: torch.sparse.mm(sparse, A.float()),
        lambda: sparse @ A.float(),
        lambda: sparse.to_sparse_csr() @ A[:, 0].float(),
        lambda: functional.linear(A[:, :64].float(), sparse.to_sparse_csr(), A[0, :64].float()),
    ]
    for call in calls:
        plain = call()
        for fp32 in ("tf32", "ieee"):
            with ft.emulate("H100", fp32=fp32) as gpu:
                found = call()
            assert torch.equal(found, plain)
            assert gpu.report.emulated + gpu.report.assumed == 0


def test_a_backward_pass_outside_is_torchs_and_inside_is_not() -> None:
    leaf = A.clone().requires_grad_()
    grad = drawn(64, 64)
    for inside in (False, True):
        leaf.grad = None
        with ft.emulate("H100") as gpu:
            product = leaf @ A.t()
            if inside:
                product.backward(grad)
        if not inside:
            product.backward(grad)
        assert torch.equal(leaf.grad, ft.mm(grad, A, target="H100")) is inside
        assert gpu.report.emulated == 1 + inside


def test_flags_that_change_nothing_of_a_product_on_a_gpu_change_nothing() -> None:
    matmul = torch.backends.cuda.matmul
    for dtype, flag in ((BF16, "allow_bf16_reduced_precision_reduction"), (F16, "allow_fp16_reduced_precision_reduction")):
        a, before = A.to(dtype), getattr(matmul, flag)
        found = []
        try:
            for allowed in (True, False):
                setattr(matmul, flag, allowed)
                with ft.emulate("H200") as gpu:
                    found.append(a @ a.t())
                gpu.report.assert_all_emulated()
        finally:
            setattr(matmul, flag, before)
        assert torch.equal(*found)


@pytest.mark.parametrize(
    ("matmul", "all_products", "named", "tf32"),
    [
        ("tf32", "ieee", "highest", True),
        ("ieee", "tf32", "high", False),
        ("none", "tf32", "highest", True),
        ("none", "none", "high", True),
        ("none", "none", "highest", False),
    ],
)
def test_tf32_follows_the_most_special_setting(matmul: str, all_products: str, named: str, tf32: bool) -> None:
    from fastmma.torch.settings import Settings

    places = ("cuda", "matmul"), ("generic", "all")
    before = torch.get_float32_matmul_precision(), *(torch._C._get_fp32_precision_getter(*place) for place in places)

    def choose(named: str, *precisions: str) -> None:
        torch.set_float32_matmul_precision(named)  # which sets that of products, too
        for place, precision in zip(places, precisions, strict=True):
            # what attributes of `torch.backends` set; those refuse it where torch's own list of operators was imported
            torch._C._set_fp32_precision_setter(*place, precision)

    try:
        choose(named, matmul, all_products)
        found = Settings("H100").takes_tf32()
    finally:
        choose(*before)
    assert found is tf32
