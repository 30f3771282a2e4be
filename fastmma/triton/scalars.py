"""Arguments of a launch as a compiled kernel has them: numbers are tensors of the type that the launcher gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton._utils import _tuple_create
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import JITFunction, mangle_type

from fastmma.triton.formats import BF16, is_bf16
from fastmma.triton.twins import convert_kind, twin


def make_scalar(value: Any, kind: Any) -> Any:
    """Make a tensor of one number; bf16 is cut off, as Triton's launcher does it.

    Examples
    --------
    >>> make_scalar(0.1, tl.float32).handle.data.tolist()
    [0.10000000149011612]
    """
    if is_bf16(kind):
        data = (np.array([value], np.float32).view(np.uint32) >> 16).astype(np.uint16).view(BF16)
    else:
        data = np.array([value]).astype(interpreter._get_np_dtype(kind))
    return tl.tensor(TensorHandle(data, kind), kind)


def _convert(value: Any, parameter: Any) -> Any:
    if isinstance(value, tuple) and not parameter.is_constexpr:
        return _tuple_create(value, (_convert(one, parameter) for one in value))
    if parameter.is_constexpr or not isinstance(value, (bool, int, float)):
        return convert_kind(value, InterpretedFunction)
    annotated = parameter.annotation_type
    if isinstance(value, int) and value == 1 and not isinstance(value, bool) and not annotated and not parameter.do_not_specialize:
        return value  # a constant of the compiled kernel
    return make_scalar(value, tl.str_to_ty(annotated or mangle_type(value), None))


def convert_arguments(kernel: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a kernel as its compiled code has them."""
    parameters = {parameter.name: parameter for parameter in twin(kernel, JITFunction).params}
    return {name: _convert(value, parameters[name]) for name, value in values.items()}
