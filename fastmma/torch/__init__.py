"""torch's matrix products with the bits of a GPU's tensor cores, on CPU tensors.

>>> import torch
>>> import fastmma.torch
>>> a = torch.ones(64, 64, dtype=torch.bfloat16)
>>> with fastmma.torch.emulate("H100") as gpu:
...     y = a @ a
>>> gpu.report.emulated
1
"""

from fastmma.host.errors import NotEmulatedError
from fastmma.torch.arrays import to_numpy, to_torch
from fastmma.torch.compilation import backend
from fastmma.torch.conversion import TorchOperand, from_scaled, to_scaled
from fastmma.torch.differences import StepDiffersError
from fastmma.torch.emulation import AssumedWarning
from fastmma.torch.function_recordings import compare_functions, record_functions
from fastmma.torch.functional import addmm, baddbmm, bmm, grouped_mm, int_mm, linear, mm, scaled_grouped_mm, scaled_mm
from fastmma.torch.library import Installation, install
from fastmma.torch.mode import emulate
from fastmma.torch.recordings import Recording
from fastmma.torch.report import Report
from fastmma.torch.rows import ModelAgreement, ModelInvariance, compare_models, invariance
from fastmma.torch.steps import SameStep, assert_same_step, record
from fastmma.torch.versions import FunctionAgreement

__all__ = [
    "AssumedWarning",
    "FunctionAgreement",
    "Installation",
    "ModelAgreement",
    "ModelInvariance",
    "NotEmulatedError",
    "Recording",
    "Report",
    "SameStep",
    "StepDiffersError",
    "TorchOperand",
    "addmm",
    "assert_same_step",
    "backend",
    "baddbmm",
    "bmm",
    "compare_functions",
    "compare_models",
    "emulate",
    "from_scaled",
    "grouped_mm",
    "install",
    "int_mm",
    "invariance",
    "linear",
    "mm",
    "record",
    "record_functions",
    "scaled_grouped_mm",
    "scaled_mm",
    "to_numpy",
    "to_scaled",
    "to_torch",
]


def __dir__() -> list[str]:
    return list(__all__)
