"""Advise what to do about a kernel that Triton refuses."""

from __future__ import annotations

import re

# what to do, by what the compiler or the interpreter says; the first that is found counts
_ADVICE = (
    (r"Unsupported function referenced|must be Tensor, not tensor", "take functions of tl, or of a triton.jit of your own"),
    (r"arange's arguments must be|must be a constexpr", "annotate the argument as tl.constexpr"),
    (r"Boolean value of Tensor with more than one", "take tl.where, or reduce the tensor to one value first"),
    (r"AST node type: (?:Break|Continue)", "put the condition into the bounds of the loop, or into a mask"),
    (r"AST node type", "write it without this statement: the compiler takes if, for, while, return and assignments"),
    (r"Loop-carried variable", "let the variable have its last type before the loop, such as tl.zeros((), tl.float32)"),
    (r"only tuple comprehensions", "write a loop over tl.static_range"),
    (r"__setitem__|item assignment|unsupported tensor index", "take tl.where, tl.gather or another tl.load"),
    (r"equal reduction dimensions|Both operands must", "load, permute or cast one operand as the other requires"),
    (r"Input shapes should have", "pad the tile with a mask"),
    (r"Unsupported ptr type", "give it a tensor of the launch and add offsets to it"),
    (r"incompatible dimensions", "give both the same shape, or one axis of length 1 by [:, None]"),
    (r"cannot change total number of elements", "reshape to as many elements as there are"),
    (r"invalid axis|out of bounds for shape", "count the axes from 0"),
    (r"power of (?:2|two)", "round up to a power of two, and mask the rest"),
    (r"is not defined|has no attribute '(?!dtype|type)", "see how the name is written, and make globals tl.constexpr"),
    (r"invalid operands of type", "cast with .to() to integers first, or take other operations"),
    (r"ndarray", "pass a torch.Tensor: torch.from_numpy(it)"),
    (r"outside of the scope of a kernel", 'take lowering="compile": rules do not call methods of aggregates'),
    (r"during parsing", "what it printed above names the operation and the line"),
    (r"PassManager", "what it printed above names the operation and the line; other shapes, num_warps or num_ctas may be taken"),
    (r"failed to specialize argument", "pass tensors, numbers, functions, or tuples of these"),
    (r"nested function definitions|lambda", "define the function outside, with a triton.jit of its own"),
    (r"recursion|KeyError\('[\w.]+__", "write a loop: kernels do not call themselves"),
    (r"KeyError: \(?triton", "cast the arguments to a type that the function is made for"),
    (r"'str' object|str_to_ty|'constexpr\['", "take numbers: the compiler has no strings"),
    (r"CompileTimeAssertionFailure", "launch it with numbers for which its assertion holds"),
    (r"must be a permutation of", "name each axis once"),
    (r"f-string", "print values by tl.device_print"),
    (r"equal ranks >= 2", "multiply vectors by tl.sum(a * b)"),
    (r"not supported in this architecture", "take a type that this GPU's instructions have, or name another GPU"),
)


def advise(text: str) -> str:
    """Return what to do about what went wrong, behind a semicolon; empty where nothing is known.

    Examples
    --------
    >>> advise("range must be a power of 2")
    '; round up to a power of two, and mask the rest'
    """
    return next((f"; {advice}" for pattern, advice in _ADVICE if re.search(pattern, text)), "")
