"""cuBLAS for any product: from what the library chooses to the order of additions."""

from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.plan_of import plan

__all__ = ["Choice", "plan"]
