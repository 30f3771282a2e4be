"""The operands of a product as codes: of two matrices, or of two stacks of them."""

from __future__ import annotations

from fastmma.backends.call import Operands
from fastmma.host.errors import OperandError
from fastmma.isa.sparsity import pattern_of
from fastmma.operands.check import codes_of, codes_of_array
from fastmma.operands.extra import extra_operands
from fastmma.products.bound import Arguments
from fastmma.products.epilogue import f32_code
from fastmma.products.gemm_plan import GemmPlan

_ONE = 0x3F800000


def bind_operands(plan: GemmPlan, arguments: Arguments, *, stacks: bool = False) -> tuple[Operands, tuple[int, ...]]:
    """Read the codes of operands, and the shape of their product; with `stacks`, a and b may have three dimensions.

    Raises
    ------
    OperandError, OperandTypeError
        If the operands do not go together, or not with the plan.
    """
    ins = plan.operation.instruction
    formats = ins.formats
    a = codes_of_array(arguments.a, formats.a, f"{ins.opcode}: a", cast=plan.cast)
    b = codes_of_array(arguments.b, formats.b, f"{ins.opcode}: b", cast=plan.cast)
    matched = a.ndim == b.ndim and (a.ndim == 2 or (stacks and a.ndim == 3)) and a.shape[:-2] == b.shape[:-2]
    if not matched or a.shape[-1] * ins.k != b.shape[-2] * ins.stored_k:
        turned = matched and a.shape[-1] * ins.k == b.shape[-1] * ins.stored_k
        needed = f"a of shape (M, {'K / 2' if ins.sparse else 'K'}) and b of shape (K, N)"
        needed += ", or a (T, M, K) and b (T, K, N)," if stacks else ","
        raise OperandError(f"{ins}: {arguments.call} needs {needed} not {a.shape} and {b.shape}{'; b.T would fit' if turned else ''}")
    depth, shape = b.shape[-2], (*a.shape[:-1], b.shape[-1])
    if ins.sparse and depth % pattern_of(ins).chunk:
        raise OperandError(f"{ins}: K must be a multiple of {pattern_of(ins).chunk}, not {depth}")
    c = None
    if arguments.c is not None and not plan.adds_c:
        c = codes_of(arguments.c, formats.c, f"{ins.opcode}: c", cast=plan.cast)
        if c.shape != shape:
            raise OperandError(f"{ins}: c must have shape {shape}, not {c.shape}")
    check_ends(plan, arguments)
    extra = extra_operands(ins, arguments.metadata, arguments.scale_a, arguments.scale_b, a.shape[-2], b.shape[-1], depth)
    for name, array in extra.items():
        if array.ndim != 2:
            raise OperandError(f"{ins}: {name} must have two dimensions, not {array.ndim}")
    if len(shape) == 2:
        a, b, c = a[None], b[None], None if c is None else c[None]
    return Operands(a, b, c)._replace(**{name: array[None] for name, array in extra.items()}), shape


def check_ends(plan: GemmPlan, arguments: Arguments) -> None:
    """Raise OperandError if the plan has no place for what its epilogue is given."""
    call, alpha, bias, beta = arguments.call, arguments.alpha, arguments.bias, arguments.beta
    missing = []
    if not plan.epilogue:
        missing += ["alpha"] if f32_code(alpha, f"{call}: alpha") != _ONE else []
        missing += ["bias"] if bias is not None else []
    missing += ["beta"] if beta is not None and not plan.adds_c else []
    if missing:
        raise OperandError(f"{call}: the plan's epilogue {plan.epilogue} has no step for {' and '.join(missing)}")
