"""All methods of the interpreter's builder, and the status of what each computes where nothing more is said of it."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.products.report import NEUTRAL, PASSED, UNSEEN


@dataclass(frozen=True)
class Method:
    """One operation of Triton's language.

    Attributes
    ----------
    name : str
        The builder's method.
    status : {"neutral", "passed", "unseen"}
        Its status, unless the operation that stands in its place tells another.
    why : str
    canonical : bool
        Whether a NaN that it returns has all bits set but the sign, as the PTX ISA says of 32- and 16-bit floats.
    """

    name: str
    status: str
    why: str
    canonical: bool = False

    @property
    def operation(self) -> str:
        """Return the name under which reports count it."""
        return self.name.removeprefix("create_")


_MOVES = (
    *("masked_load", "masked_store", "addptr", "bitcast", "int_to_ptr", "ptr_to_int"),
    *("select", "reshape", "trans", "expand_dims", "broadcast", "join", "split", "splat", "unsplat", "gather"),
    *("make_tensor_descriptor", "descriptor_load", "descriptor_store", "descriptor_gather", "descriptor_scatter"),
)
_INTEGERS = (
    *("get_program_id", "get_num_programs", "make_range", "histogram", "int_cast"),
    *("mul", "idiv", "srem", "urem", "add", "sub", "shl", "lshr", "ashr", "and", "xor", "or", "umulhi", "iabs"),
    *("minsi", "minui", "maxsi", "maxui"),
    *("icmpSLE", "icmpSLT", "icmpSGE", "icmpSGT", "icmpULE", "icmpULT", "icmpUGE", "icmpUGT", "icmpEQ", "icmpNE"),
    "atomic_rmw",
)
_COMPARISONS = ("fcmpOLT", "fcmpOGT", "fcmpOLE", "fcmpOGE", "fcmpOEQ", "fcmpUNE")
_SIGNS = ("fneg", "fabs")
_ROUNDED = (
    *("fadd", "fmul", "fsub", "fma", "fdiv", "precise_divf", "approx_divf", "sqrt", "precise_sqrt", "frem"),
    *("minimumf", "minnumf", "maximumf", "maxnumf", "clampf", "floor", "ceil"),
)
_CONVERSIONS = ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc", "fp_to_fp")
_NOTHING = ("print", "assert", "assume", "barrier", "grid_dependency_wait", "grid_dependency_launch_dependents")
_ORDERED = ("atomic_cas", "atomic_load", "atomic_store", "atomic_poll")
_OF_THEIR_OWN = (
    *("dot", "dot_scaled", "cos", "sin", "exp", "exp2", "log", "log2", "erf", "rsqrt"),
    *("extern_elementwise", "inline_asm"),
)

_ROWS = (
    (_MOVES, NEUTRAL, "moves data", False),
    (_INTEGERS, NEUTRAL, "integers", False),
    (_COMPARISONS, NEUTRAL, "IEEE 754", False),
    (_SIGNS, NEUTRAL, "IEEE 754", False),
    (_ROUNDED, NEUTRAL, "IEEE 754", True),
    (_CONVERSIONS, NEUTRAL, "IEEE 754", False),
    (_NOTHING, NEUTRAL, "computes nothing", False),
    (("cat",), PASSED, "can_reorder=True: the order of its elements depends on the layout of the threads", False),
    (_ORDERED, PASSED, "what it finds in memory changes from run to run of a GPU", False),
    (_OF_THEIR_OWN, UNSEEN, "in no list", False),  # what stands in their place tells more, always
)
METHODS = {f"create_{name}": Method(f"create_{name}", status, why, nan) for names, status, why, nan in _ROWS for name in names}

# the interpreter has none, and they do nothing where programs run one after another
ABSENT = ("create_grid_dependency_wait", "create_grid_dependency_launch_dependents")

# these only call others of the builder; constants and types are those whose name begins with get_
HELPERS = frozenset(
    {
        *("set_grid_idx", "set_grid_dim", "cast_impl", "binary_op", "ternary_op", "unary_op"),
        *("create_load", "create_store", "create_sdiv", "create_udiv"),
    }
)


def find_method(name: str) -> Method:
    """Return what is known of a method of the builder.

    Examples
    --------
    >>> find_method("create_fadd").status, find_method("create_transmogrify").status
    ('neutral', 'unseen')
    """
    return METHODS.get(name) or Method(name, UNSEEN, "in no list")
