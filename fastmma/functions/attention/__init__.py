"""Scaled dot product attention as torch's CUDA kernels compute it: flash attention and memory-efficient attention, forward and backward."""

from fastmma.functions.attention.dropout import Dropout
from fastmma.functions.attention.efficient_forward import efficient
from fastmma.functions.attention.efficient_gradients import efficient_backward
from fastmma.functions.attention.flash_forward import flash
from fastmma.functions.attention.flash_gradients import flash_backward
from fastmma.functions.attention.turns import efficient_repeats, flash_repeats

__all__ = ["Dropout", "efficient", "efficient_backward", "efficient_repeats", "flash", "flash_backward", "flash_repeats"]
