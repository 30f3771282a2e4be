"""Matrix products and quantisation of Dask arrays, with the bits of one call.

>>> import dask.array as da
>>> import numpy as np
>>> import fastmma.dask
>>> a = da.ones((64, 256), np.float16, chunks=(32, 100))
>>> float(fastmma.dask.gemm(a, a.T, target="H100").sum().compute())
1048576.0
"""

from fastmma.dask.products import gemm
from fastmma.dask.scaled import ScaledDaskArray, quantize, scaled_matmul

__all__ = ["ScaledDaskArray", "gemm", "quantize", "scaled_matmul"]


def __dir__() -> list[str]:
    return list(__all__)
