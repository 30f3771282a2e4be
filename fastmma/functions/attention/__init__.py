"""Scaled dot product attention as torch computes it on a GPU: cuDNN's, flash, memory-efficient and math attention, forward and backward."""

from fastmma.functions.attention.cudnn_forward import cudnn, cudnn_adds_in_order
from fastmma.functions.attention.cudnn_gradients import cudnn_backward
from fastmma.functions.attention.dropout import Dropout
from fastmma.functions.attention.efficient_forward import efficient
from fastmma.functions.attention.efficient_gradients import efficient_backward, efficient_bias_gradient
from fastmma.functions.attention.flash_forward import flash
from fastmma.functions.attention.flash_gradients import flash_backward
from fastmma.functions.attention.flash_sequences import flash_sequences, flash_sequences_backward, flash_sequences_repeat
from fastmma.functions.attention.math_attention import math_attention, math_backward
from fastmma.functions.attention.turns import cudnn_repeats, efficient_repeats, flash_repeats

__all__ = [
    "Dropout",
    "cudnn",
    "cudnn_adds_in_order",
    "cudnn_backward",
    "cudnn_repeats",
    "efficient",
    "efficient_backward",
    "efficient_bias_gradient",
    "efficient_repeats",
    "flash",
    "flash_backward",
    "flash_repeats",
    "flash_sequences",
    "flash_sequences_backward",
    "flash_sequences_repeat",
    "math_attention",
    "math_backward",
]
