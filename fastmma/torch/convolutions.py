"""Convolutions: the sums that cuDNN's kernels compute, in the order of the kernel that it takes as far as that is known."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fastmma.functions import convolution as sums
from fastmma.functions.convolution import Order
from fastmma.host.errors import TargetError
from fastmma.products.evidence import OrderEvidence
from fastmma.products.library_gpu import library_gpu
from fastmma.torch.arrays import to_numpy, to_torch
from fastmma.torch.convolution_book import RATE, Sizes, order_of
from fastmma.torch.convolution_rules import INPUT, OTHER, PATCH, POINT, RESULT, WEIGHT, Call, row_of
from fastmma.torch.emulation import Emulation, tensors_text
from fastmma.torch.plans import FORMATS, UnknownError, status_of
from fastmma.torch.reductions import ROWS as REDUCTIONS
from fastmma.torch.report import ASSUMED, Line

_RECORDED = ("H100", "H200")
_LIBRARY = "cuDNN 9.19 on an H100 and an H200"
_BOOK_LIBRARY = "cuDNN 9.19 on an H200"
_FORMS = {1: (torch.contiguous_format,), 2: (torch.contiguous_format, torch.channels_last)}
_WHY = "cuDNN's implicit products are not known"
_BACKWARD = torch.ops.aten.convolution_backward.default


class _Shape:
    """A convolution of two dimensions; one of one dimension has a height of 1."""

    def __init__(self, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> None:
        self.dims = x.dim() - 2
        self.x, self.weight = self.lift(x), self.lift(weight)
        before = [1] * (2 - self.dims)
        self.steps = {"stride": [*before, *_pair(stride, self.dims)], "dilation": [*before, *_pair(dilation, self.dims)]}
        self.steps["padding"] = [*[0] * (2 - self.dims), *_pair(padding, self.dims)]

    def lift(self, tensor: Tensor) -> Tensor:
        """Give a tensor a height."""
        return tensor if self.dims == 2 else tensor[:, :, None]

    def lower(self, tensor: Tensor) -> Tensor:
        """Take the height away again."""
        return tensor if self.dims == 2 else tensor[:, :, 0]

    @property
    def kind(self) -> str:
        """Name the kind of convolution, as the rows do."""
        size = list(self.weight.shape[2:])
        if any(self.steps["padding"]) or self.steps["stride"] != size or any(step != 1 for step in self.steps["dilation"]):
            return OTHER
        return POINT if size == [1, 1] else PATCH


def _pair(values: Sequence[int], count: int) -> list[int]:
    return [int(each) for each in values] * (count if len(values) == 1 else 1)


def convolution(
    run: Emulation,
    name: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution, rounded, and then its bias, rounded again."""
    _check(x, weight, transposed, groups)
    shape = _Shape(x, weight, stride, padding, dilation)
    order, status, how = _chosen(run, shape, RESULT, _places(shape), (x, weight))
    found = sums.convolve(to_numpy(shape.x), to_numpy(shape.weight), order, **shape.steps)
    result = shape.lower(to_torch(found))
    if bias is not None:
        result += bias.view(-1, *[1] * shape.dims)
    run.done(Line(name, status, tensors_text((x, weight)), how, _known(order)))
    return result.contiguous(memory_format=torch.channels_last) if _is_last(x, weight) else result


def convolution_backward(
    run: Emulation,
    name: str,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of a convolution that are asked for: each is told on its own."""
    _check(x, weight, transposed, groups)
    shape = _Shape(x, weight, stride, padding, dilation)
    rest = bias_sizes, stride, padding, dilation, transposed, output_padding, groups
    found: list[Tensor | None] = [None] * 3
    for index, (of, compute) in enumerate(((INPUT, _of_input), (WEIGHT, _of_weight))):
        if not output_mask[index]:
            continue
        try:
            order, status, how = _chosen(run, shape, of, grad.shape[2:].numel(), (grad, x, weight))
        except UnknownError as unknown:
            run.passed(name, f"{of}: {unknown}", tensors_text((grad, x, weight)))
            mask = [place == index for place in range(3)]
            found[index] = run.plain.get(_BACKWARD, _BACKWARD)(grad, x, weight, *rest, mask)[index]
            continue
        found[index] = shape.lower(compute(shape, shape.lift(grad), order))
        run.done(Line(name, status, tensors_text((grad, x, weight)), f"{of}: {how}", _known(order)))
    if output_mask[2]:
        found[2] = _of_bias(run, name, grad)
    return tuple(found)


def _check(x: Tensor, weight: Tensor, transposed: bool, groups: int) -> None:
    """Raise UnknownError where no order is known."""
    plain = all(each.is_cpu and each.layout is torch.strided and not each.is_neg() for each in (x, weight))
    if not plain or transposed or groups != 1 or x.dim() not in (3, 4) or x.dtype is not weight.dtype or not x.numel():
        raise UnknownError(_WHY)
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or not torch.backends.cudnn.enabled:
        raise UnknownError(_WHY)


def _chosen(run: Emulation, shape: _Shape, of: str, places: int, given: tuple[Tensor, ...]) -> tuple[Order, str, str]:
    """Find the order of a convolution, and tell how well it is known."""
    fmt = FORMATS[shape.x.dtype] if shape.x.dtype is not torch.float32 or _takes_tf32(run) else "f32"
    found = _in_book(run, shape, of, fmt, given)
    if found is None:
        order, rate = _by_rule(run, shape, of, fmt, places)
        evidence = OrderEvidence("fitted" if rate else "assumed", f"a kernel of {_LIBRARY}", rate)
    else:
        order, evidence = found, OrderEvidence("fitted", f"the kernel that {_BOOK_LIBRARY} took", RATE)
    status, how = status_of(evidence), f"{order}; {evidence}"
    if status == ASSUMED and run.settings.unknown == "error":
        raise TargetError(f"{how}; unknown='one' takes this order")
    return order, status, how


def _by_rule(run: Emulation, shape: _Shape, of: str, fmt: str, places: int) -> tuple[Order, tuple[int, int] | None]:
    """Find an order by rules, and the rate of a rule that holds for this call."""
    x, weight = shape.x, shape.weight
    depth = x.shape[0] * places if of == WEIGHT else weight[0].numel()
    sizes = (x.shape[0], x.shape[1], weight.shape[0], weight.shape[2], depth, places)
    row = row_of(Call(of, fmt, shape.kind, *sizes))
    if row is None:
        raise UnknownError(_WHY)
    usual = not _is_last(x, weight) and not torch.backends.cudnn.benchmark and library_gpu(run.settings.target) in _RECORDED
    return row.order, row.rate if usual else None


def _in_book(run: Emulation, shape: _Shape, of: str, fmt: str, given: tuple[Tensor, ...]) -> Order | None:
    """Find the order of a convolution that was recorded, if torch and its tensors are as they were then."""
    switches = torch.backends.cudnn
    strides, dilation, padding = (shape.steps[name] for name in _STEPS)
    whole = any(all(each.is_contiguous(memory_format=form) for each in given) for form in _FORMS[shape.dims])
    usual = library_gpu(run.settings.target) == "H200" and whole and all(each.storage_offset() * each.itemsize % 16 == 0 for each in given)
    if not usual or switches.benchmark or switches.deterministic or torch.are_deterministic_algorithms_enabled():
        return None
    height = shape.x.shape[2]
    square = strides[0] == strides[1] or (shape.weight.shape[2] == height == 1 and strides[0] == 1)
    if shape.kind != OTHER or not square or any(step != 1 for step in dilation):
        return None
    sizes = Sizes._make((*shape.x.shape, *(shape.weight.shape[at] for at in (0, 2, 3)), strides[1], *padding))
    return order_of(sizes, of, fmt, last=not all(each.is_contiguous() for each in given))


def _known(order: Order) -> str:
    """Tell how well the arithmetic is known."""
    return "measured" if order.tensor_cores else "by definition"


def _takes_tf32(run: Emulation) -> bool:
    """Tell whether products of float32 are in TF32: what the caller said, or else torch's own settings, the most special first."""
    cudnn = torch.backends.cudnn
    said = (run.settings.fp32, cudnn.conv.fp32_precision, cudnn.fp32_precision, torch.backends.fp32_precision)
    return bool(next((each for each in said if each not in (None, "none")), None) == "tf32")


def _is_last(*tensors: Tensor) -> bool:
    """Do channels lie last in one of some tensors?"""
    last = torch.channels_last
    return any(each.dim() == 4 and each.is_contiguous(memory_format=last) and not each.is_contiguous() for each in tensors)


def _places(shape: _Shape) -> int:
    """Count the results of an image and a channel."""
    count = 1
    for size, kernel, step, gap, fill in zip(
        shape.x.shape[2:], shape.weight.shape[2:], *(shape.steps[name] for name in _STEPS), strict=True
    ):
        count *= (size + 2 * fill - gap * (kernel - 1) - 1) // step + 1
    return count


_STEPS = ("stride", "dilation", "padding")


def _of_input(shape: _Shape, grad: Tensor, order: Order) -> Tensor:
    """Compute the gradient of what a convolution was given; of patches, each number is in one."""
    if shape.kind == OTHER:
        size = shape.x.shape[2:]
        return to_torch(sums.convolve_backward_input(to_numpy(grad), to_numpy(shape.weight), size, order, **shape.steps))
    height, width = shape.weight.shape[2:]
    rows = grad.permute(0, 2, 3, 1).flatten(0, 2)
    patches = to_torch(sums.multiply(to_numpy(rows.contiguous()), to_numpy(shape.weight.flatten(1).t().contiguous()), order))
    split = patches.to(shape.x.dtype).view(*grad.shape[:1], *grad.shape[2:], -1, height, width)
    found = torch.zeros_like(shape.x, memory_format=torch.contiguous_format)
    joined = split.permute(0, 3, 1, 4, 2, 5).reshape(*shape.x.shape[:2], grad.shape[2] * height, grad.shape[3] * width)
    found[:, :, : joined.shape[2], : joined.shape[3]] = joined
    return found


def _of_weight(shape: _Shape, grad: Tensor, order: Order) -> Tensor:
    return to_torch(sums.convolve_backward_weight(to_numpy(grad), to_numpy(shape.x), shape.weight.shape, order, **shape.steps))


def _of_bias(run: Emulation, name: str, grad: Tensor) -> Tensor:
    """Compute the gradient of a bias, which is torch's own sum."""
    axes = [axis for axis in range(grad.dim()) if axis != 1]
    if run.settings.computes_functions:
        found: Tensor = REDUCTIONS["sum"]({"self": grad, "dim": axes, "keepdim": False, "dtype": None})
        run.computed(name, (grad,), "the gradient of the bias: ")
        return found
    run.passed(name, "the gradient of the bias: a GPU sums in another order", tensors_text((grad,)))
    return grad.sum(axes)
