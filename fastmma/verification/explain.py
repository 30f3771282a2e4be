"""One element of d of a trial in full: the matrices of its execution, and why the element has its bits."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fastmma.backends.call import Operands
from fastmma.execution.plan import MmaPlan
from fastmma.execution.shared_memory import matrix_in_memory
from fastmma.explanation.explain import explain_operands
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.instruction import Instruction
from fastmma.operands.registers import gather
from fastmma.operands.scales import unpack_scales
from fastmma.operands.sparse import unpack_metadata
from fastmma.verification.trials import Trial

Codes = NDArray[Any]


def operands_of_tile(trial: Trial, execution: int, tile: int) -> dict[str, Codes]:
    """The matrices of one execution, as codes: a, b and c, and metadata and scales where there are any."""
    ins = trial.instruction
    if not isinstance(ins, Instruction):
        raise InstructionError(f"{ins} multiplies nothing")
    found: dict[str, Codes] = {}
    for name in "abc":
        source = "d" if ins.op == "wgmma" and name == "c" else name
        if source in trial.operands:
            matrices = gather(trial.operands[source][execution], ins.operands[source], kind=ins.kind)
            found[name] = matrices[tile] if ins.tiles > 1 else matrices
        else:
            outer, k, fmt = (ins.m, ins.stored_k, ins.formats.a) if name == "a" else (ins.n, ins.k, ins.formats.b)
            place = Descriptor.decode(trial.arguments[name])
            mn_major = bool(trial.arguments.get(f"imm_trans_{name}", 0))
            lines = matrix_in_memory(trial.operands["memory"][execution], place, outer, k, fmt, mn_major, name)
            found[name] = lines if name == "a" else lines.T
        if trial.arguments.get(f"imm_scale_{name}", 1) < 0:
            sign = 1 << (getattr(ins.formats, name).bits - 1)
            found[name] = found[name] ^ found[name].dtype.type(sign)
    if ins.sparse:
        found["metadata"] = unpack_metadata(ins, trial.operands["metadata"][execution], selector=trial.arguments.get("selector", 0))
    for name in "ab" if ins.scale_vec_size else "":
        ids = (trial.arguments.get(f"{kind}_id_{name}", 0) for kind in ("byte", "thread"))
        scales = unpack_scales(ins, trial.operands[f"scale_{name}"][execution], name, *ids)
        found[f"scale_{name}"] = scales if name == "a" else scales.T
    return found


@public_call
def explain(trial: Trial, target: str, execution: int, row: int, col: int, tile: int = 0) -> str:
    """Return what feeds one element of d, and how the emulator adds it up.

    Parameters
    ----------
    trial : Trial
        Of an instruction that multiplies.
    target : str
    execution : int
        Which of the trial's.
    row, col, tile : int
        The element of d; `tile` is one of four for m8n8k4 with f16.

    Returns
    -------
    str
        The text of `fastmma.Explanation`.

    Raises
    ------
    InstructionError
        If the opcode multiplies nothing.
    TargetError
        If what the target computes is not known.

    Examples
    --------
    >>> from fastmma.isa.table import instruction
    >>> from fastmma.verification.trials import draw
    >>> trial = draw(instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), ("tie",), 1, 0)
    >>> print(explain(trial, "sm_90a", 0, 3, 5).splitlines()[1])
    f16 x f16 on sm_90a
    """
    given = operands_of_tile(trial, execution, tile)
    operands = Operands(**{name: codes[None] for name, codes in given.items()})
    return str(explain_operands(MmaPlan(target, str(trial.instruction)), operands, row, col))
