"""Tests against a GPU's bits: comparisons that name the plan of a wrong result, and hard inputs.

`fastmma.testing.plugin` is a plug-in that pytest loads by itself where fastmma is installed.

>>> import fastmma
>>> from fastmma.testing import adversarial, assert_product
>>> a, b = adversarial((8, 64), "f16"), adversarial((64, 8), "f16", seed=1)
>>> assert_product(fastmma.gemm(a, b, target="H100"), a, b, target="H100")
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from fastmma.testing.assertions import assert_bits_equal, assert_product
    from fastmma.testing.bits import ulp_distance
    from fastmma.testing.decisions import assert_invariant, assert_same_bits
    from fastmma.testing.inputs import adversarial
    from fastmma.testing.sensitivity import assert_sensitive

__all__ = [
    "adversarial",
    "assert_bits_equal",
    "assert_invariant",
    "assert_product",
    "assert_same_bits",
    "assert_sensitive",
    "ulp_distance",
]

# imported when they are first used: pytest imports this package with its plug-in, whatever the tests are about
_MODULES = {
    "adversarial": "inputs",
    "assert_bits_equal": "assertions",
    "assert_invariant": "decisions",
    "assert_product": "assertions",
    "assert_same_bits": "decisions",
    "assert_sensitive": "sensitivity",
    "ulp_distance": "bits",
}


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
