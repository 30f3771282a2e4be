"""Functions of libdevice by their symbols, as Triton's compiler takes them: with its own release, numbers flushed, products contracted."""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.bounded import Bounded
from fastmma.host.errors import OperandError
from fastmma.host.float_mode import in_default_mode
from fastmma.host.threads import parallel_for, thread_count
from fastmma.kernels.functions.bitcode import bitcode, file_digest, find_tritons
from fastmma.kernels.functions.contraction import contract
from fastmma.kernels.functions.machine_code import libdevice_text, reached
from fastmma.kernels.functions.nvvm import INLINE, definitions
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.object_code import link_text

_DEFINED = re.compile(r"define (?:internal )?([\w]+) @[\w.]+\(([^)]*)\)")
_LOCAL = re.compile(r"@(nvvm_\w+)\(")
_NAMES = {"float": "float32", "double": "float64", "i32": "int32", "i64": "int64"}
_DTYPES: dict[str, np.dtype[Any]] = {kind: np.dtype(name) for kind, name in _NAMES.items()}
_COMPILER = "triton"
_PTX = re.compile(r'asm "([^"]*)"')
_GRAIN = 1 << 14  # elements that a thread takes at a time


_LOOP = """
define void @loop({parameters}, ptr noalias %d, i64 %from, i64 %to) {{
entry:
 %none = icmp sge i64 %from, %to
 br i1 %none, label %done, label %next
next:
 %i = phi i64 [ %from, %entry ], [ %j, %next ]
{body} %q = getelementptr {made}, ptr %d, i64 %i
 store {made} %r, ptr %q
 %j = add nuw nsw i64 %i, 1
 %more = icmp slt i64 %j, %to
 br i1 %more, label %next, label %done
done:
 ret void
}}
"""


class _Record(NamedTuple):
    """A function and its libdevice, for which a loop is compiled."""

    symbol: str
    digest: str
    compiler: str


class _Loop(NamedTuple):
    run: Any
    given: tuple[np.dtype[Any], ...]
    made: np.dtype[Any]


_loops: Bounded[_Record, _Loop] = Bounded()


def _signature(symbol: str, path: Path) -> tuple[list[str], str]:
    match = _DEFINED.match(bitcode(path).functions[symbol])
    assert match is not None
    return [each.split()[0] for each in match[2].split(",")], match[1]


def _source(symbol: str, path: Path) -> str:
    """Write a module with a loop that calls a function for each element."""
    kinds, made = _signature(symbol, path)
    body = ""
    for index, kind in enumerate(kinds):
        body += f" %p{index} = getelementptr {kind}, ptr %a{index}, i64 %i\n %x{index} = load {kind}, ptr %p{index}\n"
    given = ", ".join(f"{kind} %x{index}" for index, kind in enumerate(kinds))
    body += f" %r = call {made} @{symbol}({given})\n"
    loop = _LOOP.format(parameters=", ".join(f"ptr noalias %a{index}" for index in range(len(kinds))), made=made, body=body)
    defined = definitions(_COMPILER)
    return reached(defined + contract_all(libdevice_text([symbol], defined, path)) + loop, "loop")


def contract_all(text: str) -> str:
    """Contract each function of a text by itself."""
    return re.sub(r"^define .*?^\}\n", lambda match: contract(match[0]), text, flags=re.S | re.M)


@lru_cache(1024)
def is_known(symbol: str) -> bool:
    """Tell whether Triton's libdevice is on this machine, and has a function that is made of nothing unknown."""
    path = find_tritons()
    if path is None or symbol not in bitcode(path).functions:
        return False
    kinds, made = _signature(symbol, path)
    if not {*kinds, made} <= _DTYPES.keys():
        return False
    text, defined = bitcode(path), definitions(_COMPILER)
    bodies = "".join(text.functions[each] for each in text.needed(symbol))
    called = {f"nvvm_{each.replace('.', '_')}" for each in re.findall(r"@llvm\.nvvm\.([\w.]+)\(", bodies)}
    written = all(any(part in each for part in INLINE) for each in _PTX.findall(bodies))
    return written and called <= set(_LOCAL.findall(defined))


def call(symbol: str, *operands: NDArray[Any], threads: int | None = None) -> NDArray[Any]:
    """Call a function for each element.

    Parameters
    ----------
    symbol : str
        For example ``"__nv_expf"``.
    operands : array
        Of the function's types; of one shape.
    threads : int, optional

    Raises
    ------
    OperandError
        If it is not known.
    """
    path = find_tritons()
    if path is None or not is_known(symbol):
        raise OperandError(f"{symbol} is no function that is known of Triton's libdevice")
    record = _Record(symbol, file_digest(path), _COMPILER)
    found = _loops.get(record)
    if found is None:
        (address,) = link_text(_FILES, record, lambda: in_default_mode(_source, symbol, path), ("loop",))
        kinds, made = _signature(symbol, path)
        types = [ctypes.c_void_p] * (len(kinds) + 1) + [ctypes.c_int64] * 2
        found = _Loop(ctypes.CFUNCTYPE(None, *types)(address), tuple(_DTYPES[kind] for kind in kinds), _DTYPES[made])
        _loops.keep(record, found)
    loop = found
    arrays = [np.ascontiguousarray(operand, dtype) for operand, dtype in zip(operands, loop.given, strict=True)]
    result = np.empty(arrays[0].shape, loop.made)
    given = [array.ctypes.data for array in arrays]
    parallel_for(lambda start, stop, _: loop.run(*given, result.ctypes.data, start, stop), result.size, thread_count(threads), _GRAIN)
    return result


_FILES = KernelFiles(call)
