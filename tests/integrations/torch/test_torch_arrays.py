"""Tensors as arrays and back, without copies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402
from fastmma import FastmmaError  # noqa: E402
from fastmma.torch.arrays import DTYPES  # noqa: E402


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_memory_is_shared_in_both_directions(dtype: torch.dtype) -> None:
    codes = np.arange(48, dtype=np.uint8).reshape(6, 8)[:, : 8 // dtype.itemsize * dtype.itemsize]
    tensor = torch.from_numpy(codes.copy() & 1 if dtype is torch.bool else codes.copy()).view(dtype)
    array = ft.to_numpy(tensor.t())
    assert array.dtype == DTYPES[dtype]
    assert array.T.tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert array.ctypes.data == tensor.data_ptr()
    back = ft.to_torch(array)
    assert back.dtype is dtype
    assert back.data_ptr() == tensor.data_ptr()
    assert back.stride() == tensor.t().stride()


def test_the_storage_stays_resizable() -> None:
    tensor = torch.zeros(4, 4, dtype=torch.bfloat16)
    ft.to_numpy(tensor)
    tensor.untyped_storage().resize_(64)
    assert tensor.untyped_storage().size() == 64


def test_pairs_of_float4_are_unpacked_along_the_contiguous_dimension() -> None:
    packed = torch.tensor([[0x21, 0x43], [0x65, 0x07]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    array = ft.to_numpy(packed)
    assert array.dtype == ml_dtypes.float4_e2m1fn
    assert array.astype(float).tolist() == [[0.5, 1, 1.5, 2], [3, 4, 6, 0]]
    assert ft.to_numpy(packed.t()).astype(float).tolist() == array.T.astype(float).tolist()
    assert (ft.to_torch(array).view(torch.uint8) == packed.view(torch.uint8)).all()


def test_what_numpy_cannot_see_is_resolved_or_an_error() -> None:
    number = torch.tensor([1 + 2j])
    assert ft.to_numpy(number.conj().imag).tolist() == [-2]
    grown = torch.ones(3, requires_grad=True)
    assert ft.to_numpy(grown).tolist() == [1, 1, 1]
    for wrong in (number, torch.eye(3).to_sparse(), torch.ones(2, device="meta")):
        with pytest.raises(FastmmaError):
            ft.to_numpy(wrong)


def test_what_torch_cannot_share_is_copied_or_an_error() -> None:
    array = np.arange(6, dtype=np.float32)
    frozen = array.copy()
    frozen.flags.writeable = False
    for given in (array[::-1], frozen, array.astype(">f4")):
        assert ft.to_torch(given).tolist() == given.tolist()
    with pytest.raises(FastmmaError):
        ft.to_torch(np.ones(2, np.float128 if hasattr(np, "float128") else np.complex64))
