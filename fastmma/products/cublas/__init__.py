"""cuBLAS for any product: from what the library chooses to the order of additions."""

from typing import TYPE_CHECKING, Any

from fastmma.products.cublas.choice import Choice

if TYPE_CHECKING:
    from fastmma.products.cublas.plan_of import plan

__all__ = ["Choice", "plan"]


def __getattr__(name: str) -> Any:
    """Import `plan` when it is first used: the plans that it makes ask other modules of this package."""
    if name != "plan":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fastmma.products.cublas.plan_of import plan as found

    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
