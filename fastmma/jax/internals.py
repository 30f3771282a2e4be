"""What of JAX is not public: lowering tables and two primitives, in one place, checked when they are imported."""

from __future__ import annotations

from typing import Any

import jax
from jax.interpreters import mlir

from fastmma.host.errors import BackendError

_WRITTEN_FOR = "0.10"

try:
    from jax._src.cudnn.scaled_matmul_stablehlo import _scaled_matmul_p as scaled_matmul_p
    from jax._src.interpreters.mlir import _lowerings, _platform_specific_lowerings
    from jax._src.lax.lax import canonicalize_precision, dot_general_p

    cpu_lowerings: dict[Any, Any] = _platform_specific_lowerings["cpu"]
    common_lowerings: dict[Any, Any] = _lowerings
except (ImportError, KeyError) as error:
    raise BackendError(f"fastmma.jax is written for jax {_WRITTEN_FOR}; in jax {jax.__version__} it does not find {error}") from error

__all__ = ["canonicalize_precision", "common_lowerings", "cpu_lowerings", "dot_general_p", "lowered", "register", "scaled_matmul_p"]


def lowered(primitive: Any, entry: Any, context: Any, *operands: Any, **parameters: Any) -> Any:
    """What a rule that was in a table makes of a call; of the common table, if there was none for the CPU."""
    found = entry if entry is not None else common_lowerings[primitive]
    return getattr(found, "rule", found)(context, *operands, **parameters)


def register(primitive: Any, rule: Any) -> None:
    """Put a rule into the table of the CPU."""
    mlir.register_lowering(primitive, rule, platform="cpu")
