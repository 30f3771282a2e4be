"""CUDA's autocast for tensors on the CPU that stand for those of a GPU: which operators cast their operands, and to what.

Lists are those of PyTorch 2.11, which are CUDA's alone: a CPU's own autocast casts others. Later releases have `rms_norm` among them.
Kernels of torch for CUDA's key of its dispatcher leave tensors on a CPU as they are, so others take their places while a thread emulates,
or pretends a GPU.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fastmma.host import forks
from fastmma.host.replacing import replace

_KEY = torch._C.DispatchKey.AutocastCUDA
_KEYS = torch._C.DispatchKeySet(_KEY)
_DEVICE = "cuda"
_CPU = "cpu"

LOWER = (
    "_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input "
    "convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot "
    "_thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention "
    "scaled_dot_product_attention"
)
SINGLE = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar "
    "softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity "
    "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss "
    "margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits "
    "dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d "
    "upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d "
    "upsample_bicubic2d _upsample_bicubic2d_aa"
)
SINGLE_RESULT = (
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm linalg_matrix_norm.str_ord sum "
    "sum.dim_IntList"
)
SINGLE_NORM = "norm.Scalar norm.ScalarOpt_dim"
WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
BANNED = "binary_cross_entropy"
_WITH_DTYPE = {"norm.Scalar": torch.ops.aten.norm.ScalarOpt_dtype, "norm.ScalarOpt_dim": torch.ops.aten.norm.ScalarOpt_dim_dtype}


class _Local(threading.local):
    """What a thread has: how many regions of `casting` it is within, and of emulations; weights that were cast, by places in memory."""

    depth = 0
    emulations = 0

    def __init__(self) -> None:
        self.casts: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}


_local = _Local()
_lock = forks.shared_lock(outermost=True)
_inside = 0
_has_kernels = False
_set: ExitStack


def _eligible(device: str, value: Any) -> bool:
    """Tell whether autocast may cast an operand."""
    return isinstance(value, Tensor) and value.device.type == device and value.is_floating_point() and value.dtype is not torch.float64


def _device_of(given: Any) -> str:
    """Name the device of the tensors that are a GPU's: the CPU, where the thread casts and no tensor is on a real one."""
    real = any(isinstance(each, Tensor) and each.device.type == _DEVICE for each in tree_leaves(given))
    return _DEVICE if real or not _local.depth else _CPU


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast an operand; a weight is cast once within a region of autocast, so that its gradients are added in the narrow format."""
    if tensor.dtype is dtype:
        return tensor
    is_weight = tensor.requires_grad and tensor.is_leaf and not tensor._is_view() and tensor.dtype is torch.float32
    cached = torch.is_grad_enabled() and torch.is_autocast_cache_enabled() and dtype is torch.get_autocast_dtype(_DEVICE)
    if not (is_weight and cached):
        return tensor.to(dtype)
    found = _local.casts.get(id(tensor))
    if found is not None and found[0]() is tensor:
        return found[1]
    made = tensor.to(dtype)
    _local.casts[id(tensor)] = weakref.ref(tensor), made
    return made


def _cast_all(args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    device = _device_of((args, kwargs))
    found: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(
        lambda each: _cast(each, dtype) if _eligible(device, each) else each, (args, kwargs)
    )
    return found


def _lower(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = _cast_all(args, kwargs, torch.get_autocast_dtype(_DEVICE))
    return func(*args, **kwargs)


def _single(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = _cast_all(args, kwargs, torch.float32)
    return func(*args, **kwargs)


def _single_result(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ask for a float32 result, unless the caller asks for a format."""
    if _eligible(_device_of(args), args[0]) and _dtype_of(func, args, kwargs) is None:
        place = _place_of_dtype(func)
        args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
    return func(*args, **kwargs)


def _place_of_dtype(func: Any) -> int:
    return next(index for index, each in enumerate(func._schema.arguments) if each.name == "dtype")


def _dtype_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
    place = _place_of_dtype(func)
    found: torch.dtype | None = args[place] if place < len(args) else kwargs.get("dtype")
    return found


def _single_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the overload that takes a format."""
    name = f"{func._schema.name.partition('::')[2]}.{func._overloadname}"
    dtype = torch.float32 if _eligible(_device_of(args), args[0]) else args[0].dtype
    named = {each.name: each.default_value for each in func._schema.arguments if each.has_default_value()}
    named |= dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
    own, order = named.pop("self"), named.pop("p")
    return _WITH_DTYPE[name](own, order, *named.values(), dtype=dtype)


def _widest(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Cast to float32 where an operand is float32, else to the narrow format.

    Raises
    ------
    RuntimeError
        If an operand has another format.
    """
    device, narrow = _device_of((args, kwargs)), torch.get_autocast_dtype(_DEVICE)
    formats = {each.dtype for each in tree_leaves((args, kwargs)) if _eligible(device, each)}
    if formats - {torch.float32, narrow}:
        raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    args, kwargs = _cast_all(args, kwargs, torch.float32 if torch.float32 in formats else narrow)
    return func(*args, **kwargs)


def _refuse(_func: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Raise.

    Raises
    ------
    RuntimeError
        Always.
    """
    raise RuntimeError("binary_cross_entropy is unsafe to autocast; binary_cross_entropy_with_logits, which has a sigmoid within, is safe")


Policy = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
POLICIES: dict[str, Policy] = {
    **dict.fromkeys(LOWER.split(), _lower),
    **dict.fromkeys(SINGLE.split(), _single),
    **dict.fromkeys(SINGLE_RESULT.split(), _single_result),
    **dict.fromkeys(SINGLE_NORM.split(), _single_norm),
    **dict.fromkeys(WIDEST.split(), _widest),
    BANNED: _refuse,
}


def _kernel(func: Any, policy: Policy) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return policy(func, args, kwargs)

    return kernel


def _operators() -> Iterator[tuple[Any, Policy]]:
    """List the operators that this release of torch has kernels of autocast for."""
    for name, policy in POLICIES.items():
        packet, _, overload = name.partition(".")
        func = getattr(getattr(torch.ops.aten, packet), overload or "default")
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "AutocastCUDA"):
            yield func, policy


def _unless_emulated(plain: Callable[..., Any], answer: Any) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        return answer if _local.depth else plain(*args, **kwargs)

    return ask


def _cast_inputs(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Have functions of `torch.amp.custom_fwd` cast tensors on the CPU, too."""

    def cast(value: Any, device: str, dtype: torch.dtype) -> Any:
        found = plain(value, device, dtype)
        return plain(found, _CPU, dtype) if device == _DEVICE and _local.depth else found

    return cast


def _forgetting(plain: Callable[[], None]) -> Callable[[], None]:
    def clear() -> None:
        _local.casts.clear()
        plain()

    return clear


def _with_kernels(plain: Callable[..., None]) -> Callable[..., None]:
    """Have regions of autocast, of which each that begins calls this function, find the kernels."""

    def turn(*args: Any, **kwargs: Any) -> None:
        _add_kernels()
        plain(*args, **kwargs)

    return turn


def _add_kernels() -> None:
    """Put the kernels in the places of torch's, unless they are there: it takes a millisecond, and most emulations have no autocast."""
    global _has_kernels
    with _lock:
        if _has_kernels or not _inside:
            return
        library: Any = torch.library.Library("aten", "IMPL")
        _set.callback(library._destroy)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # torch's, that kernels are replaced
            for func, policy in _operators():
                library.impl(func, _kernel(func, policy), "AutocastCUDA", allow_override=True)
        _has_kernels = True


def _remove_all() -> None:
    """Put back what concerns the process."""
    global _has_kernels
    _has_kernels = False
    _set.close()


def _entered() -> ExitStack:
    """Set what concerns the process, but for the kernels."""
    stack = ExitStack()
    try:
        amp = torch.cuda.amp.common
        for owner, name, made in (
            (amp, "amp_definitely_not_available", _unless_emulated(amp.amp_definitely_not_available, False)),
            (torch.cuda, "is_bf16_supported", _unless_emulated(torch.cuda.is_bf16_supported, True)),
            (torch.amp.autocast_mode, "_cast", _cast_inputs(torch.amp.autocast_mode._cast)),
            (torch, "clear_autocast_cache", _forgetting(torch.clear_autocast_cache)),
            (torch, "set_autocast_enabled", _with_kernels(torch.set_autocast_enabled)),
        ):
            replace(stack, owner, name, made)
    except BaseException:
        stack.close()
        raise
    return stack


@contextmanager
def casting(*, emulates: bool = False) -> Iterator[None]:
    """Have ``torch.autocast("cuda")`` on this thread cast tensors on the CPU as it casts a GPU's, within the ``with``.

    Parameters
    ----------
    emulates : bool
        Whether products are emulated within the ``with``, too.
    """
    global _inside, _set
    with _lock:
        if not _inside:
            _set = _entered()
        _inside += 1
    _local.depth += 1
    _local.emulations += emulates
    try:
        if is_on():
            _add_kernels()
        with torch._C._IncludeDispatchKeyGuard(_KEY):
            yield
    finally:
        _local.depth -= 1
        _local.emulations -= emulates
        with _lock:
            _inside -= 1
            if not _inside:
                _remove_all()


def is_on() -> bool:
    """Tell whether the thread is within a region of CUDA's autocast."""
    return bool(torch.is_autocast_enabled(_DEVICE))


def is_inside() -> bool:
    """Tell whether the thread is within an emulation."""
    return _local.emulations > 0


def paused() -> Any:
    """Return a context in which operators cast nothing: below autograd, autocast has cast already."""
    return torch._C._ExcludeDispatchKeyGuard(_KEYS)
