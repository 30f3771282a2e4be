"""The memory and the name of the first GPU in this machine, by CUDA's driver: no library of Python is needed."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import BackendError

_NAMES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def load_driver() -> Any:
    """Load the driver's library.

    Raises
    ------
    BackendError
        If there is none.
    """
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise BackendError("this machine has no NVIDIA driver, so there is no GPU to ask")


class Driver:
    """The first GPU.

    Parameters
    ----------
    library
        CUDA's driver, as `load_driver` loads it.

    Raises
    ------
    BackendError
        Here or by the methods: what the driver answers.
    """

    def __init__(self, library: Any) -> None:
        self._library, device, context = library, ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        self.capability = self._attribute(device, _MAJOR), self._attribute(device, _MINOR)

    def _call(self, name: str, *values: Any) -> None:
        status = getattr(self._library, name)(*values)
        if status:
            raise BackendError(f"{name} answers {status}")

    def _attribute(self, device: Any, number: int) -> int:
        found = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(found), number, device)
        return found.value

    def allocate(self, size: int) -> ctypes.c_void_p:
        """Take so many bytes of the GPU's memory."""
        found = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(max(size, 1)))
        return found

    def free(self, place: ctypes.c_void_p) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", place)

    def upload(self, place: ctypes.c_void_p, array: NDArray[Any]) -> None:
        """Copy an array to the GPU."""
        data = np.ascontiguousarray(array)
        self._call("cuMemcpyHtoD_v2", place, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))

    def download(self, place: ctypes.c_void_p, array: NDArray[Any]) -> None:
        """Copy from the GPU, when all that it was told to do is done, to a contiguous array."""
        self._call("cuCtxSynchronize")
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), place, ctypes.c_size_t(array.nbytes))
