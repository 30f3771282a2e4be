"""Reductions into memory by tensor descriptors, which Triton's interpreter does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime.interpreter import TensorHandle

from fastmma.host.errors import NotEmulatedError
from fastmma.products.report import NEUTRAL
from fastmma.triton.emulation import Emulation

_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_FLOATS = "how the TMA joins floats in memory was not recorded, and the order of programs changes from run to run of a GPU"


def reduce_into_memory(run: Emulation, builder: Any, kind: Any, descriptor: Any, values: Any, indices: Any) -> None:
    """Join a block with what lies in memory, as ``descriptor.atomic_add`` and the like do.

    Raises
    ------
    NotEmulatedError
        If fastmma does not model it, or floats may not pass.
    """
    name = str(kind).rpartition(".")[2].lower()
    if name not in _JOINS:
        raise NotEmulatedError(f"descriptor.atomic_{name}: fastmma does not model it")
    pointers, mask = descriptor.materialize_pointers(indices)
    zeros = TensorHandle(np.zeros(values.data.shape, values.data.dtype), values.dtype.scalar)
    held = builder.create_masked_load(pointers, mask, zeros, cache_policy=None, is_volatile=False)
    if values.dtype.scalar.is_floating():
        run.report.passes(f"descriptor.atomic_{name}", _FLOATS)
    else:
        run.report.tell(NEUTRAL, f"descriptor.atomic_{name}", "integers, in whichever order")
    joined = np.asarray(_JOINS[name](held.data, values.data)).astype(values.data.dtype)
    builder.create_masked_store(pointers, TensorHandle(joined, values.dtype.scalar), mask, None)
