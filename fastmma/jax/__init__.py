"""JAX's matrix products with the bits of a GPU's tensor cores, on a CPU.

>>> import jax.numpy as jnp
>>> import fastmma.jax
>>> a = jnp.ones((8, 64), jnp.bfloat16)
>>> with fastmma.jax.emulate("H100") as report:
...     float((a @ a.T)[0, 0])
64.0
>>> report.assumed, report.passed
(1, 0)
"""

from fastmma.jax.lowering import emulate
from fastmma.jax.primitive import dot_general
from fastmma.jax.report import Line, Report
from fastmma.jax.scaled import scaled_matmul

__all__ = ["Line", "Report", "dot_general", "emulate", "scaled_matmul"]


def __dir__() -> list[str]:
    return list(__all__)
