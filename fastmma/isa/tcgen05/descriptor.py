"""The instruction descriptor of tcgen05.mma: the 32-bit word that names types and shape, which ptxas does not look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from fastmma.host.errors import InstructionError
from fastmma.isa.tcgen05.kinds import K96, KINDS, Kind, columns, rows
from fastmma.isa.tcgen05.syntax import Syntax

# (field, lowest bit, bits)
_ALWAYS = (("sparse", 2, 1), ("atype", 7, 3), ("negate_a", 13, 1), ("negate_b", 14, 1), ("n", 17, 6))
_MAJORS = (("transpose_a", 15, 1), ("transpose_b", 16, 1))
_SCALED = (("scale_b_id", 4, 2), ("stype", 23, 1), ("m", 27, 2), ("scale_a_id", 29, 2))
_PLAIN = (("sparsity_selector", 0, 2), ("saturate", 3, 1), ("dtype", 4, 2), ("btype", 10, 3), ("m", 24, 5), ("max_shift", 30, 2))
# the fields of the three forms, from the lowest bit up; all other bits are 0
_FORMS = {
    name: tuple(sorted(fields, key=itemgetter(1)))
    for name, fields in (
        ("plain", (*_ALWAYS, *_MAJORS, *_PLAIN)),
        ("mx8", (*_ALWAYS, *_MAJORS, *_SCALED, ("btype", 10, 3))),
        ("mx4", (*_ALWAYS, *_SCALED, ("btype", 10, 2), ("k", 31, 1))),
    )
}
_DTYPES = {"f16": 0, "f32": 1, "s32": 2}
_STYPES = {"ue4m3": 0, "ue8m0": 1}
_SHIFTS = {0: 0, 8: 1, 16: 2, 32: 3}
_TRUTHS = {False: 0, True: 1}
_NUMBERS = {each: each for each in range(4)}


@lru_cache(256)
def _codes(kind: Kind, field: str, bits: int) -> dict[Any, int]:
    """The values of a field, and how they are written."""
    known: dict[str, dict[Any, int]] = {
        "dtype": {name: _DTYPES[name] for name in kind.dtypes},
        "atype": dict(kind.codes),
        "btype": dict(kind.codes),
        "stype": {name: _STYPES[name] for name in kind.stypes or ()},
        "max_shift": _SHIFTS,
        "n": {8 * each: each for each in range(1 << bits)},
        "m": {(16 if kind.layout == "plain" else 128) * each: each for each in range(1 << bits)},
        "k": {kind.k: 0, K96: 1},
    }
    return known.get(field, _TRUTHS if bits == 1 else _NUMBERS)


def _plain(value: Any) -> Any:
    """Convert a scalar of NumPy to Python's; anything else stays."""
    if type(value) in (int, str, bool):
        return value
    import numpy as np

    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class InstructionDescriptor:
    """The fields of the descriptor word of a tcgen05.mma.

    Attributes
    ----------
    kind : str
    dtype, atype, btype : str
        PTX names of the formats.
    m, n : int
    k : int
        0 means the K of the kind, or twice that if sparse; 96 for mxf4 and mxf4nvf4 on sm_103a.
    sparse, saturate : bool
    stype : str
        The format of scales, or empty.
    negate_a, negate_b : bool
    transpose_a, transpose_b : bool
        Whether M (or N), and not K, is contiguous in shared memory.
    scale_a_id, scale_b_id : int
        The first byte of the words in Tensor Memory that hold an instruction's scales.
    sparsity_selector : int
    max_shift : int
        ``.ws`` only: the most columns by which a zero-column mask shifts B: 0, 8, 16 or 32.

    Raises
    ------
    InstructionError
        If a field has a value that is not allowed.

    Examples
    --------
    >>> hex(InstructionDescriptor("f16", "f32", "bf16", "bf16", 128, 128).encode())
    '0x8200490'
    >>> InstructionDescriptor.decode("f8f6f4", 0x08400010).atype
    'e4m3'
    """

    kind: str
    dtype: str
    atype: str
    btype: str
    m: int
    n: int
    k: int = 0
    sparse: bool = False
    saturate: bool = False
    stype: str = ""
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    scale_a_id: int = 0
    scale_b_id: int = 0
    sparsity_selector: int = 0
    max_shift: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise InstructionError(f"there is no .kind::{self.kind!r:.60}; there are {', '.join(KINDS)}")
        if not self.k:
            object.__setattr__(self, "k", self._kind.k)
        if not self.stype and self._kind.stypes:
            object.__setattr__(self, "stype", next(iter(self._kind.stypes)))
        form = {name: bits for name, _, bits in _FORMS[self._kind.layout]}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name == "dtype" and name not in form:
                self._choose(name, value, dict.fromkeys(self._kind.dtypes, 0))
            elif name in form:
                self._choose(name, value, _codes(self._kind, name, form[name]))
            elif name not in ("kind", "k") and value:
                raise self._refuse(f"it has no {name}, and so not {value!r:.60}")
            elif name == "k" and value != self._kind.k:
                raise self._refuse(f"k must be {self._kind.k}, not {value!r:.60}")
        if self.saturate and self.kind != "i8":
            raise self._refuse("saturate is for i8 only")
        if (self.negate_a or self.negate_b) and self.kind == "i8":
            raise self._refuse("negate_a and negate_b are for floats only")
        if self._kind.same and self.atype != self.btype:
            raise self._refuse(f"atype {self.atype} and btype {self.btype} must be the same: the hardware traps on a mixture")
        if self.kind == "f16" and self.dtype == "f16" and self.atype != "f16":
            raise self._refuse("dtype f16 needs atype and btype f16")
        if self.sparse and self.k == K96:
            raise self._refuse("k 96 is for dense instructions only")
        if self.sparsity_selector and not (self.sparse and self.sparsity_selector == 1 and self.kind in ("f16", "tf32")):
            raise self._refuse(f"sparsity_selector must be 0, or 1 for sparse f16 and tf32, not {self.sparsity_selector}")

    @property
    def _kind(self) -> Kind:
        return KINDS[self.kind]

    def _refuse(self, why: str) -> InstructionError:
        return InstructionError(f"instruction descriptor of kind::{self.kind}: {why}")

    def _choose(self, name: str, value: Any, codes: dict[Any, int]) -> int:
        value = _plain(value)
        if type(value) not in {type(each) for each in codes} or value not in codes:
            shown = ", ".join(map(str, codes)) if len(codes) < 9 else f"{min(codes)}, {sorted(codes)[1]}, ... {max(codes)}"
            raise self._refuse(f"{name} must be {'one of ' * (len(codes) > 1)}{shown}, not {value!r:.60}")
        return codes[value]

    def encode(self) -> int:
        """Return the word."""
        form = _FORMS[self._kind.layout]
        return sum(_codes(self._kind, name, bits)[getattr(self, name)] << low for name, low, bits in form)

    @classmethod
    def decode(cls, kind: str, word: int) -> InstructionDescriptor:
        """Return the descriptor that a word encodes for an instruction of a kind.

        Raises
        ------
        InstructionError
            If the word is not an integer of 32 bits, or a field has a value without a meaning. The message names the field and its bits.
        """
        if kind not in KINDS:
            raise InstructionError(f"there is no .kind::{kind!r:.60}; there are {', '.join(KINDS)}")
        about = f"instruction descriptor of kind::{kind}"
        rest, found = _plain(word), KINDS[kind]
        if type(rest) is not int or not 0 <= rest < 1 << 32:
            raise InstructionError(f"{about} must be an integer of 32 bits, not {word!r:.60}")
        values: dict[str, Any] = {"dtype": found.dtypes[0]}
        for name, low, bits in _FORMS[found.layout]:
            code = rest >> low & (1 << bits) - 1
            rest &= ~(((1 << bits) - 1) << low)
            meant = [value for value, each in _codes(found, name, bits).items() if each == code]
            if not meant:
                place = f"bit {low}" if bits == 1 else f"bits {low} to {low + bits - 1}"
                raise InstructionError(f"{about}: {name} ({place} of {word:#010x}) is {code}, which means nothing")
            values[name] = meant[0]
        if rest:
            raise InstructionError(f"{about}: the bits {rest:#010x} of {word:#010x} must be 0")
        return cls(kind, **values)

    def check(self, syntax: Syntax) -> None:
        """Raise unless an opcode takes the descriptor.

        Raises
        ------
        InstructionError
            If it does not; the message names the field.
        """
        kind = self._kind
        if syntax.sparse != self.sparse:
            raise self._refuse(f"sparse is {self.sparse}, but the opcode is {syntax.opcode}")
        ways = (kind, syntax.cta_group, syntax.ws, self.sparse, self.k)
        for name, value, legal in (("m", self.m, rows(*ways)), ("n", self.n, columns(*ways))):
            if value not in legal:
                shown = ", ".join(map(str, legal)) if len(legal) < 6 else f"{legal[0]}, {legal[1]}, ... {legal[-1]}"
                raise self._refuse(f"{syntax.opcode} takes {name} of {shown}, not {value}")
        if syntax.ashift and self.m not in (128, 256):
            raise self._refuse(f".ashift takes m of 128 or 256, not {self.m}")
        if self.max_shift and (not syntax.ws or self.m == 32):
            raise self._refuse("max_shift must be 0 without .ws, and with m of 32")
        for name in ("a", "b"):
            fmt = getattr(self, f"{name}type")
            if getattr(self, f"transpose_{name}") and fmt in ("e2m3", "e3m2", "e2m1"):
                raise self._refuse(f"transpose_{name} needs elements of 8 bits or more, not {fmt}")
        if kind.stypes is not None:
            size = syntax.scale_vec_size
            if size not in kind.stypes[self.stype]:
                raise self._refuse(f"stype {self.stype} does not go with .{syntax.vector}")
            for name in ("scale_a_id", "scale_b_id"):
                step = size if self.k != K96 else {2: 1, 4: 2}[size]
                if getattr(self, name) % step:
                    raise self._refuse(f"{name} must be a multiple of {step}, not {getattr(self, name)}")
