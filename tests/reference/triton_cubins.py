"""Ask Triton's machine code on a GPU whose machine has no Triton, or another: it is compiled where this Triton is, which needs no GPU.

``python -m tests.reference.triton_cubins build FILE`` compiles the launches of tests/integrations/triton/launches.py for an H200, and
writes them with their arguments. ``python triton_cubins.py record FILE RESULTS`` on the machine with the GPU, which needs this module,
NumPy and CuPy, writes what they computed. ``python -m tests.reference.triton_cubins shorten RESULTS RECORDING`` keeps of each result what
tests compare: its head and a digest.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

CAPABILITY = 90
HEAD = 16  # elements of a result that a recording keeps beside the digest
_SCRATCH = 1 << 20  # bytes behind the two pointers that follow the arguments of each kernel
_MOST_SHARED = 48 << 10  # shared memory that needs no leave


def compiled(launch: Any) -> Any:
    """Triton's answer for a launch: pointers, and integers that are multiples of 16, are marked so, as its launcher does."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    names = launch.kernel.arg_names
    constants = {name: value for name, value in launch.named.items() if launch.is_constant(name)}
    return compile(
        ASTSource(
            fn=launch.kernel,
            signature={name: launch.signature(name) if name not in constants else "constexpr" for name in names},
            constexprs={(names.index(name),): value for name, value in constants.items()},
            attrs={
                (index,): [["tt.divisibility", 16]]
                for index, name in enumerate(names)
                if name not in constants and launch.is_divisible(name)
            },
        ),
        target=GPUTarget("cuda", CAPABILITY, 32),
        options={"enable_fp_fusion": True, **launch.options},
    )


def build(file: Path) -> None:
    """Compile all launches into one file: their machine code, their arguments, and how they are launched."""
    from tests.integrations.triton.launches import launches

    described: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for number, launch in enumerate(launches()):
        made = compiled(launch)
        arrays[f"{number}.cubin"] = np.frombuffer(made.asm["cubin"], np.uint8)
        passed: list[Any] = []
        for name in launch.kernel.arg_names:
            value = launch.named[name]
            if isinstance(value, np.ndarray):
                arrays[f"{number} {name}"] = value.view(f"u{value.itemsize}")
                passed.append([name, name in launch.results])
            elif not launch.is_constant(name):
                passed.append([launch.signature(name), value])
        described[launch.name] = {
            "number": number,
            "entry": made.metadata.name,
            "threads": 32 * made.metadata.num_warps,
            "shared": made.metadata.shared,
            "grid": launch.grid,
            "arguments": passed,
        }
    np.savez_compressed(file, launches=np.array(json.dumps(described)), **arrays)
    print(len(described), "launches")


def launched(cupy: Any, built: Any, launch: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Launch one, and take the arrays that it leaves."""
    number = launch["number"]
    cubin = folder / f"{number}.cubin"  # a file of its own for each, since CuPy keeps modules by path
    cubin.write_bytes(built[f"{number}.cubin"].tobytes())
    kernel = cupy.RawModule(path=str(cubin)).get_function(launch["entry"])
    if launch["shared"] > _MOST_SHARED:
        kernel.max_dynamic_shared_size_bytes = launch["shared"]
    passed: list[Any] = []
    results: dict[str, Any] = {}
    for kind, value in launch["arguments"]:
        if isinstance(value, bool):
            passed.append(cupy.asarray(built[f"{number} {kind}"]))
            results |= {kind: passed[-1]} if value else {}
        else:
            passed.append({"i32": np.int32, "fp32": np.float32}[kind](value))
    scratch = cupy.zeros(_SCRATCH, np.uint8)
    kernel(tuple(launch["grid"]), (launch["threads"],), (*passed, scratch, scratch), shared_mem=launch["shared"])
    return {kind: cupy.asnumpy(array) for kind, array in results.items()}


def record(file: Path, results: Path) -> None:
    """Launch all that a file holds, and write the arrays that they leave."""
    import cupy

    found: dict[str, Any] = {}
    with np.load(file) as built, TemporaryDirectory() as folder:
        for name, launch in json.loads(str(built["launches"])).items():
            try:
                found |= {f"{name} -> {kind}": array for kind, array in launched(cupy, built, launch, Path(folder)).items()}
            except Exception as error:  # the others count all the same
                print(name, type(error).__name__, error)
    np.savez_compressed(results, **found)
    print(len(found), "results,", cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


def shortened(array: Any) -> Any:
    """The first elements of a result and, after them, a digest of all, as one array of bytes."""
    bits = np.ascontiguousarray(array)
    digest = np.frombuffer(hashlib.sha256(bits.tobytes()).digest()[:8], np.uint8)
    return np.concatenate([digest, bits.ravel()[:HEAD].view(np.uint8)])


def shorten(results: Path, recording: Path) -> None:
    """Write the recording that tests replay."""
    with np.load(results) as found:
        np.savez_compressed(recording, **{name: shortened(found[name]) for name in found.files})


if __name__ == "__main__":
    {"build": build, "record": record, "shorten": shorten}[sys.argv[1]](*map(Path, sys.argv[2:]))
