"""CUDA C++ of the emulator: the files in ``cuda/`` after the parameters of an instruction's row, so that one source serves all rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fastmma.backends.call import Operation
from fastmma.backends.parameters import fused_parameters, holds, in_kernels, scaled_parameters
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.numerics.methods import METHODS

FOLDER = Path(__file__).parent / "cuda"
THREADS = 256  # a block
LINES = 64  # rows and columns of a block of the tile kernel
BLOCK_LINES = 128  # and of the kernel that executes an instruction of the GPU
_STAGES = 3  # in shared memory at a time, of which one is read
# no term is that small: a lower floor changes nothing, and powers of two down from it are in the range of float64
_LOWEST_FLOOR = -300
_MAIN_FILES = {
    "element": ("element.cu",),
    "tile": ("lines.cuh", "sums.cuh", "panels.cuh", "packing.cuh", "tile.cu"),
    "matrices": ("lines.cuh", "sums.cuh", "fragments.cuh", "packing.cuh", "matrix_steps.cu"),
    "instruction": ("lines.cuh", "instruction.cu"),
}
# by the distance of exponents in a product of powers of two, which is a power of two itself: the exponents that float32 has room for
_POWERS = {4: 63, 8: 31}
_LEAST_SCALED = -100  # exponents of scaled products for which the kernel by matrix instructions looks at no floor
_FMA = {"": "fma_nearest", "rn": "fma_nearest", "rz": "fma_toward_zero", "rm": "fma_down", "rp": "fma_up"}


@dataclass(frozen=True)
class BlockShape:
    """A block of a kernel of steps: `lines` rows by as many columns, and how much of k it takes at a time."""

    depth: int
    stage_words: int  # of one line
    blocks: int  # a multiprocessor should hold: as many as leave a thread the registers that it needs
    lines: int = LINES
    stages: int = 1  # in shared memory at a time
    threads: int = THREADS

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.stage_words * 2 * self.lines * self.stages

    @property
    def parameters(self) -> dict[str, str | int]:
        """The macros that the source takes."""
        return {
            "LINES": self.lines,
            "DEPTH": self.depth,
            "STAGES": self.stages,
            "STAGE_WORDS": self.stage_words,
            "THREADS": self.threads,
            "BLOCKS_PER_PROCESSOR": self.blocks,
        }


@dataclass(frozen=True)
class Execution:
    """The registers in which the kernel that executes an instruction of the GPU holds its operands and sums."""

    instruction: Instruction

    @property
    def word_bytes(self) -> int:
        """Of a register of A and B."""
        return 8 if self.instruction.formats.a.bits == 64 else 4

    @property
    def word_dtype(self) -> np.dtype[Any]:
        """Of the words that operands are packed into."""
        return np.dtype(f"u{self.word_bytes}")

    @property
    def words(self) -> int:
        """Of one line for one instruction."""
        return self.step_bytes // self.word_bytes

    @property
    def step_bytes(self) -> int:
        """What one line takes for one instruction."""
        return self.instruction.k * self.instruction.formats.a.bits // 8

    @property
    def stage_steps(self) -> int:
        """Instructions along k whose operands are copied to shared memory together."""
        return 64 // self.step_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 2 * BLOCK_LINES * self.step_bytes * self.stage_steps * _STAGES

    @property
    def parameters(self) -> dict[str, str | int]:
        """The macros that the source takes."""
        ins, words = self.instruction, self.words // 4
        sums = 2 if ins.dtype == "f16" else 4
        return {
            "LINES": BLOCK_LINES,
            "STAGES": _STAGES,
            "STAGE_STEPS": self.stage_steps,
            "BLOCKS_PER_PROCESSOR": 1,
            "INSTRUCTION_K": ins.k,
            "WORD": f"uint{8 * self.word_bytes}",
            "LANE_WORDS": words,
            "SUM": "double" if ins.dtype == "f64" else "uint32",
            "SUMS": sums,
            "CHAIN": int(ins.dtype == "f64"),
            "EXECUTED_A_SIGNED": int(ins.formats.a.kind == "signed"),
            "EXECUTED_B_SIGNED": int(ins.formats.b.kind == "signed"),
            "WARPGROUP": int(ins.op == "wgmma"),
            "EXECUTE": _warpgroup_assembly(ins, sums) if ins.op == "wgmma" else _assembly(ins, sums, 2 * words, words),
        }


def _assembly(ins: Instruction, sums: int, a_words: int, b_words: int) -> str:
    """A statement that executes an instruction on arrays of registers d, a and b."""
    letter, read = ("d", "double_of({})") if ins.dtype == "f64" else ("r", "{}")
    names = [f"%{index}" for index in range(sums + a_words + b_words)]
    groups = names[:sums], names[sums : sums + a_words], names[sums + a_words :], names[:sums]
    text = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    results = ", ".join(f'"+{letter}"(d[{index}])' for index in range(sums))
    given = [read.format(f"{name}[{index}]") for name, count in (("a", a_words), ("b", b_words)) for index in range(count)]
    return f'asm volatile("{ins.opcode} {text};" : {results} : {", ".join(f"{_quote(letter)}({each})" for each in given)})'


def _warpgroup_assembly(ins: Instruction, sums: int) -> str:
    """A statement that has a warpgroup execute an instruction: on sums d in registers, and operands in shared memory."""
    tiles = ins.n // 8
    names = [f"%{index}" for index in range(tiles * sums)]
    a, b = f"%{len(names)}", f"%{len(names) + 1}"
    text = f"{{ .reg .pred p; setp.eq.b32 p, 0, 0; {ins.opcode} {{{', '.join(names)}}}, {a}, {b}, p, 1, 1; }}"
    results = ", ".join(f'"+r"(d[{tile}][{index}])' for tile in range(tiles) for index in range(sums))
    return f'asm volatile("{text}" : {results} : "l"(a_descriptor), "l"(b_descriptor) : "memory")'


def _quote(letter: str) -> str:
    return f'"{letter}"'


def _code(fmt: Format) -> str:
    return f"uint{8 * fmt.code_dtype.itemsize}"


@lru_cache(1024)
def parameters(operation: Operation) -> dict[str, str | int]:
    """The macros that the source takes: derived from the instruction and its numerics row."""
    ins, row = operation.instruction, operation.arithmetic
    method = METHODS[row.method]
    afmt, bfmt, cfmt, dfmt, _, scale = ins.formats
    wide = operation.multiplied
    pattern = pattern_of(ins) if ins.sparse else None
    found: dict[str, str | int] = {
        "THREADS": THREADS,
        "A_CODE": _code(afmt),
        "B_CODE": _code(bfmt),
        "C_CODE": _code(cfmt),
        "D_CODE": _code(dfmt),
        "A_BITS": afmt.bits,
        "B_BITS": bfmt.bits,
        "A_NEGATIVE": int(afmt.kind == "signed"),
        "B_NEGATIVE": int(bfmt.kind == "signed"),
        "A_PADDING": afmt.padding,
        "B_PADDING": bfmt.padding,
        "A_FRACTION": wide[0].mantissa_bits,
        "B_FRACTION": wide[1].mantissa_bits,
        "SCALE_FRACTION": scale.mantissa_bits if scale else 0,
        "SCALE_BLOCK": ins.k // ins.scale_vec_size if ins.scale_vec_size else 0,
        "HALF": int(ins.accumulator == "f16"),
        "C_HALF": int(ins.ctype == "f16"),
        "D_HALF": int(ins.dtype == "f16"),
        "SPARSE": int(pattern is not None),
        "CHUNK": pattern.chunk if pattern else 1,
        "CHUNK_STORED": pattern.stored if pattern else 1,
        "PERIOD": ins.k,
        "SPLIT": row.split,
        "PAIRS": int(method.in_pairs),
        "SATFINITE": int(ins.satfinite),
        "BIT_XOR": int(ins.bit_op == "xor"),
        "FMA": _FMA[ins.rounding],
    }
    if method.in_steps:
        found |= _steps(operation)
    return found


def has_tile_kernel(operation: Operation) -> bool:
    """Tell whether products of this method have a kernel of their own, and not only that of single results."""
    return METHODS[operation.arithmetic.method].in_steps and not operation.own


def covers(operation: Operation) -> bool:
    """Tell whether there is source for the operation's arithmetic."""
    row = operation.arithmetic
    if not in_kernels(row) or not METHODS[row.method].cuda_source:
        return False
    if not operation.own or not METHODS[row.method].in_steps:
        return True
    halves = not row.split or 2 * row.terms == operation.instruction.stored_k
    return halves and not row.interleave and holds(operation)


def _steps(operation: Operation) -> dict[str, str | int]:
    """Return how k is cut into steps, counted along the dense k."""
    row = operation.arithmetic
    if operation.instruction.scale_vec_size:
        scaled = scaled_parameters(operation)
        step, group = scaled.step, scaled.group
    else:
        step, group = fused_parameters(operation).terms, 1
    return {
        "STEP": step,
        "GROUP": group,
        "PERIOD": 2 * step if row.split else step,
        "ALIGN_BITS": row.align_bits,
        "EMAX_FLOOR": max(row.emax_floor, _LOWEST_FLOOR),
        "KEEP_BITS": row.keep_bits,
    }


@lru_cache(1024)
def tile_of(operation: Operation) -> BlockShape:
    """The tile for a fused or grouped row."""
    values = parameters(operation)
    step, group, period = (int(values[name]) for name in ("STEP", "GROUP", "PERIOD"))
    depth = max(32, period)
    if group > 1:
        depth *= 2  # two steps between barriers
        return BlockShape(depth, depth // 4 + 3 * depth // group, blocks=2)
    words = depth + depth // 2 + depth // 32 + (depth // step if values["SCALE_BLOCK"] else 0)
    return BlockShape(depth, words, blocks=3)


@lru_cache(1024)
def matrix_tile_of(operation: Operation) -> BlockShape | None:
    """The tile for a fused row whose steps matrix instructions compute exactly, or None."""
    values = parameters(operation)
    if not has_tile_kernel(operation) or values["GROUP"] != 1 or values["HALF"] or values["SPLIT"] or not _exponent_bits(operation):
        return None
    step, scaled = int(values["STEP"]), bool(values["SCALE_BLOCK"])
    smallest = _LEAST_SCALED if scaled else sum(fmt.emin for fmt in operation.multiplied)
    if step not in (8, 16, 32) or int(values["EMAX_FLOOR"]) > smallest:
        return None
    depth = max(step, 16)
    words = 2 * depth + scaled * depth // step
    return BlockShape(depth, words, blocks=2 if scaled else 3, stages=2, threads=128)


def _exponent_bits(operation: Operation) -> int:
    """Return the distance of powers of two whose sums tell a step's largest exponent; 0 where float32 has no room for them."""
    exponents = sum(fmt.emax - fmt.emin for fmt in operation.multiplied) + 1
    return next((bits for bits, most in _POWERS.items() if int(parameters(operation)["STEP"]) < 1 << bits and exponents <= most), 0)


@lru_cache(64)
def _text(name: str) -> str:
    return (FOLDER / name).read_text()


@cache
def epilogue_source() -> str:
    """The CUDA C++ of the kernels of epilogues, promotions and joins, which no operation changes."""
    return "\n".join([f"#define THREADS {THREADS}\n", *map(_text, ("portable.cuh", "specials.cuh", "floats.cuh", "epilogue.cu"))])


@lru_cache(256)
def source(operation: Operation, main: str, executed: Instruction | None = None) -> str:
    """The CUDA C++ of an operation's kernels.

    Parameters
    ----------
    operation : Operation
    main : {"element", "tile", "instruction"}
        ``"element"``: kernel ``element``, a thread a result, for every method. ``"tile"``: kernels ``pack_rows``, ``pack_columns`` and
        ``multiply``, for `has_tile_kernel`. ``"instruction"``: the same kernels, by an instruction of the GPU.
    executed : Instruction, optional
        That instruction.
    """
    values = dict(parameters(operation))
    if main == "tile":
        values |= tile_of(operation).parameters
    if main == "matrices":
        tile = matrix_tile_of(operation)
        assert tile is not None
        bits = _exponent_bits(operation)
        values |= tile.parameters | {
            "A_LOWEST": operation.multiplied[0].emin,
            "B_LOWEST": operation.multiplied[1].emin,
            "EXPONENT_BITS": bits,
            "EXPONENT_LOG": bits.bit_length() - 1,
            "ROW_TILES": 2,
            "COLUMN_TILES": 4,
        }
    if executed is not None:
        values |= Execution(executed).parameters
    macros = "".join(f"#define {name} {value}\n" for name, value in values.items())
    files = [_text("portable.cuh"), _text("specials.cuh"), _text("operands.cuh"), _text("floats.cuh")]
    if main == "element" or values.get("CHAIN"):
        files.append(_text(METHODS[operation.arithmetic.method].cuda_source))
    return "\n".join([macros, *files, *map(_text, _MAIN_FILES[main])])
