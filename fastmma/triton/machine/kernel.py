"""A compiled kernel that this CPU executes: its PTX, step by step, for all threads of many blocks at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.addresses import including
from fastmma.triton.contraction import Contractions
from fastmma.triton.machine.bulk_steps import PARAMETERS
from fastmma.triton.machine.code import Block, Code, Immediate, Register, Step
from fastmma.triton.machine.disassembly import confirm
from fastmma.triton.machine.operands import Plan, list_read
from fastmma.triton.machine.reading import MEETINGS, read_code
from fastmma.triton.machine.state import Mask, Run, State
from fastmma.triton.machine.steps import make_step
from fastmma.triton.machine.tensor_steps import name_product
from fastmma.triton.machine.values import UNSIGNED
from fastmma.triton.ptx import Program

_NAME = re.compile(r"^(.*)\+(\d+):(\d+)$")  # of a parameter, a place in it and a size
_TOGETHER = 1 << 13  # threads that run together
_MOST_SHARED = 1 << 26  # bytes of shared memory of all of these
_MOST_TURNS = 1 << 22  # blocks of steps that a launch executes before it is given up
_UNTIL_LOOK = 1 << 10  # of these, after which the state is compared with what it was
_LOOKS = 1 << 6  # how often it is looked at then
_WAITS = ("mbarrier.try_wait", "mbarrier.test_wait")
_ENDLESS = "a loop that does not end: its program waits for another one, and programs run one after another here"
_IDS = tuple(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz")


@dataclass(frozen=True)
class Executed:
    """A step that is ready: what executes it, who does, and what is known of its bits."""

    run: Run
    predicate: Register | None
    step: Step
    status: str


@dataclass(frozen=True)
class Branch:
    """The end of a basic block: where threads go on."""

    predicate: Register | None
    target: int | None  # None ends


@dataclass(frozen=True)
class Prepared:
    """A basic block, whether threads meet where it begins, and whether it repeats itself until an mbarrier lets them go on."""

    steps: tuple[Executed, ...]
    branch: Branch | None
    meets: bool
    spins: bool


class Machine:
    """A kernel.

    Parameters
    ----------
    ptx : str
    shared : int
        Bytes of shared memory of a block.
    target : str
        The GPU.
    cubin : bytes
        The machine code, which tells how many sums ptxas fused with products; empty where there is none.

    Raises
    ------
    NotEmulatedError
        If it has an instruction that nothing here executes; the message names it.
    """

    def __init__(self, ptx: str, shared: int, target: str, cubin: bytes = b"") -> None:
        self.code: Code = read_code(ptx)
        self.shared, self.target = shared, target
        self._extra: dict[str, int] = {}
        self._tables = {name: np.frombuffer(held, np.uint8) for name, held in self.code.tables.items()}
        self._sizes = list(self.code.sizes)
        plan = self._plan(Contractions(Program.read_from(ptx)), cubin)
        self.blocks = tuple(self._prepare(block, plan) for block in self.code.blocks)
        self.statuses = {one.status for block in self.blocks for one in block.steps}
        opcodes = [one.step.opcode for block in self.blocks for one in block.steps]
        self.is_sequential = any(opcode.startswith(("atom", "red.")) for opcode in opcodes)
        self.may_wait = self.is_sequential or any(opcode.startswith("mbarrier") for opcode in opcodes)

    def _special(self, name: str) -> int:
        """Return the number of the register that is filled with a value of the hardware, or of the launch."""
        if name not in self._extra:
            found, is_local = _NAME.match(name), name.startswith("__local_depot")
            if found and found[1] in self.code.parameters:
                size = int(found[3])
            elif name in (*_IDS, "%laneid", "%warpid", "global_smem", *self.code.parameters) or (self.code.local and is_local):
                size = 4
            elif name in self._tables or name == PARAMETERS:
                size = 8
            else:
                raise NotEmulatedError(f"local memory ({name})" if is_local else f"the register {name}")
            self._extra[name] = len(self._sizes)
            self._sizes.append(size)
        return self._extra[name]

    def _plan(self, contractions: Contractions, cubin: bytes) -> Plan:
        """Read which sums ptxas fuses with products, and which registers hold constants."""
        steps = {step.place: step for block in self.code.blocks for step in block.steps}
        writers: Counter[int] = Counter()
        made: dict[int, Step] = {}
        for step in steps.values():
            if step.operands and isinstance(step.operands[0], Register) and not step.opcode.startswith(("st.", "red.", "bra")):
                writers[step.operands[0].number] += 1
                made[step.operands[0].number] = step
        constants = {
            number: float(np.uint32(step.operands[1].value & 0xFFFFFFFF).view(np.float32))
            for number, step in made.items()
            if writers[number] == 1 and step.opcode.startswith("mov.b32") and isinstance(step.operands[1], Immediate) and not step.predicate
        }
        fused: dict[int, int | None] = {}
        sources: dict[int, tuple[int, bool]] = {}
        for one, index in confirm(list(contractions.list_taken()), steps, cubin):
            fused[one.place] = index
            if index is not None:
                operand = steps[one.place].operands[1 + index]
                is_negated = False
                while isinstance(operand, Register) and made[operand.number].opcode.startswith(("mov", "neg")):
                    is_negated ^= made[operand.number].opcode.startswith("neg")
                    operand = made[operand.number].operands[1]
                assert isinstance(operand, Register)
                sources[one.place] = operand.number, is_negated
        names = {step.opcode.partition(".")[0] for step in steps.values() if "f32" in step.opcode}
        products = frozenset(number for number, _ in sources.values())
        return Plan(
            self._special, constants, fused, sources, products, list_read(steps.values()), "mul" in names and bool(names & {"add", "sub"})
        )

    def _prepare(self, block: Block, plan: Plan) -> Prepared:
        steps = block.steps
        branch = None
        if steps and steps[-1].opcode.startswith(("bra", "ret", "exit")):
            last = steps[-1]
            steps = steps[:-1]
            if last.opcode.startswith("bra"):
                name = getattr(last.operands[0], "name", "")
                branch = Branch(last.predicate, self.code.labels[name])
            else:
                branch = Branch(last.predicate, None)
        if steps and steps[-1].opcode == "trap":
            raise NotEmulatedError("trap")
        made = []
        for given in steps:
            step = given
            try:
                step = name_product(given, plan)
                run, status = make_step(step, plan)
            except NotEmulatedError as error:
                raise NotEmulatedError(f"{error} ({step.line[0]}:{step.line[1]})" if step.line[0] else str(error)) from None
            made.append(Executed(run, step.predicate, step, status))
        opcodes = [one.step.opcode for one in made]
        meets = bool(opcodes) and opcodes[0].startswith(MEETINGS)
        return Prepared(tuple(made), branch, meets, any(opcode.startswith(_WAITS) for opcode in opcodes))

    def run(self, grid: tuple[int, int, int], parameters: bytes) -> Counter[Executed]:
        """Execute all blocks of a grid, and count how often each step ran.

        Parameters
        ----------
        grid : tuple of int
        parameters : bytes
            All parameters, as `Code.parameters` says where each lies.

        Raises
        ------
        NotEmulatedError
            If threads wait for others that never come.
        """
        counts: Counter[Executed] = Counter()
        number = grid[0] * grid[1] * grid[2]
        together = 1 if self.is_sequential else max(1, min(_TOGETHER // self.code.threads, _MOST_SHARED // max(self.shared, 1)))
        for first in range(0, number, together):
            ids = np.arange(first, min(number, first + together))
            state = State(tuple(self._sizes), ids.size, self.code.threads, self.shared, self.target, self.code.local)
            state.parameters = np.frombuffer(parameters, np.uint8)
            self._fill(state, ids, grid, parameters)
            with including(self._tables):
                self._execute(state, counts)
        return counts

    def compute(self, given: Mapping[int, Any], results: int) -> list[Any]:
        """Execute a kernel that touches no memory, and return its first registers.

        Parameters
        ----------
        given : mapping
            Values of one row of threads, by the number of the register.
        results : int
            How many registers to return.
        """
        threads = max(value.shape[1] for value in given.values())
        state = State(tuple(self._sizes), 1, threads, self.shared, self.target)
        for number, value in given.items():
            state.registers[number] = np.ascontiguousarray(value).view(UNSIGNED[value.itemsize])
        self._execute(state, Counter())
        return [state.full(state.registers[number]) for number in range(results)]

    def _fill(self, state: State, ids: Any, grid: tuple[int, int, int], parameters: bytes) -> None:
        """Fill the registers of the hardware and of the launch."""
        threads = np.arange(self.code.threads)[None]
        blocks = ids[:, None]
        one = np.zeros((1, 1), np.int64)
        values = {
            "%tid.x": threads,
            "%ntid.x": one + self.code.threads,
            "%ntid.y": one + 1,
            "%ntid.z": one + 1,
            "%ctaid.x": blocks % grid[0],
            "%ctaid.y": blocks // grid[0] % grid[1],
            "%ctaid.z": blocks // (grid[0] * grid[1]),
            "%nctaid.x": one + grid[0],
            "%nctaid.y": one + grid[1],
            "%nctaid.z": one + grid[2],
            "%laneid": threads % 32,
            "%warpid": threads // 32,
            "__local_depot0": one,
            PARAMETERS: one + state.parameters.ctypes.data,
            **{name: one + found.place for name, found in self.code.parameters.items()},
            **{name: one + held.ctypes.data for name, held in self._tables.items()},
        }
        for name, number in self._extra.items():
            found = _NAME.match(name)
            if found:
                start = self.code.parameters[found[1]].place + int(found[2])
                held = np.frombuffer(parameters[start : start + int(found[3])], UNSIGNED[int(found[3])])
                state.registers[number] = held.reshape(1, 1)
            else:
                state.registers[number] = values.get(name, one).astype(UNSIGNED[self._sizes[number]])

    def _execute(self, state: State, counts: Counter[Executed]) -> None:
        """Run blocks of steps until all threads have returned: those of the lowest place first, but those that wait after all others."""
        waiting: dict[int, Mask] = {0: None}
        seen: dict[int, bytes] = {}
        stuck: set[int] = set()  # whose threads wait at an mbarrier
        turns = 0
        while waiting:
            at = min(waiting, key=lambda one: (one in stuck, self.blocks[one].meets, one))
            mask = waiting.pop(at)
            if mask is not None and mask.all():
                mask = None
            turns += 1
            if turns > _MOST_TURNS:
                raise NotEmulatedError(_ENDLESS)
            if self.may_wait and turns % _UNTIL_LOOK == 0:
                seen.clear()
            if self.may_wait and turns >= _UNTIL_LOOK and turns % _UNTIL_LOOK < _LOOKS:
                _compare(seen, at, state, self.blocks[at])
            block = self.blocks[at]
            for one in block.steps:
                active = mask
                if one.predicate is not None:
                    held = state.registers[one.predicate.number]
                    held = ~held if one.predicate.negated else held
                    active = held if mask is None else held & mask
                    if not active.any():
                        continue
                    if active.all():
                        active = None
                state.line = one.step.line
                one.run(state, active)
                counts[one] += 1
            self._leave(state, at, mask, waiting)
            if block.spins and at in waiting:
                stuck.add(at)
            else:
                stuck.clear()

    def _leave(self, state: State, at: int, mask: Mask, waiting: dict[int, Mask]) -> None:
        """Send threads on to the next blocks of steps."""
        branch = self.blocks[at].branch
        if branch is None:
            _join(waiting, at + 1, mask)
            return
        if branch.predicate is None:
            if branch.target is not None:
                _join(waiting, branch.target, mask)
            return
        held = state.registers[branch.predicate.number].astype(np.bool_)
        held = ~held if branch.predicate.negated else held
        taken = held if mask is None else held & mask
        stays = ~held if mask is None else ~held & mask
        if taken.any() and branch.target is not None:
            _join(waiting, branch.target, taken if stays.any() else mask)
        if stays.any():
            _join(waiting, at + 1, stays if taken.any() else mask)


def _compare(seen: dict[int, bytes], at: int, state: State, block: Prepared) -> None:
    """Remember all registers at a block of steps, and raise where they are what they were.

    Raises
    ------
    NotEmulatedError
    """
    digest = sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in state.registers)).digest()
    if seen.get(at) == digest:
        line = block.steps[0].step.line if block.steps else state.line
        raise NotEmulatedError(f"{_ENDLESS} ({line[0]}:{line[1]})")
    seen[at] = digest


def _join(waiting: dict[int, Mask], at: int, mask: Mask) -> None:
    """Let threads wait at a block of steps, with those that are there."""
    if at in waiting and waiting[at] is not None and mask is not None:
        waiting[at] = waiting[at] | mask
    else:
        waiting[at] = mask
