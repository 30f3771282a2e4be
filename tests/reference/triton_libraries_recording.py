"""What a GPU computes in the libraries' kernels of triton_libraries.py: machine code compiled here, launched there, digests kept.

``python -m tests.reference.triton_libraries_recording build FILE SEED [types]`` runs all operations here, and writes each launch of a
kernel: its machine code, and all of its arguments as they were before. ``python triton_libraries_recording.py record FILE RESULTS`` on the
machine with the GPU, which needs this module, NumPy and CuPy, writes a digest of every array after each launch. ``python -m
tests.reference.triton_libraries_recording compare FILE RESULTS`` executes the launches here again, and prints which are equal; ``keep FILE
RESULTS LIBRARY...`` writes those of some libraries for tests/integrations/triton/test_library_launches.py.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

KEPT = Path(__file__).parents[1] / "integrations" / "triton" / "recordings" / "libraries_h200.npz"
_PLACES = re.compile(r"^\s*\.(?:loc|file)\b.*\n", re.MULTILINE)
_SCRATCH = 1 << 20  # bytes behind the two pointers that follow the arguments of each kernel
_MOST_SHARED = 48 << 10  # shared memory that needs no leave
_MOST = 1 << 18  # bytes of the arrays of a launch that is written


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def build(file: Path, seed: int, *, has_other_types: bool = False) -> None:
    """Write the launches of all operations; with other types, float32 is bf16, bf16 is f16, and f16 is bf16."""
    from dataclasses import replace

    import torch

    from fastmma.triton.machine import executable
    from fastmma.triton.machine.launch import count_programs
    from tests.reference import triton_libraries as libraries

    arrays: dict[str, Any] = {}
    described: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    answers: dict[str, Any] = {}
    of, run = executable.Executable.of.__func__, executable.Executable.run  # type: ignore[attr-defined]
    current = [""]

    def keep(cls: Any, compiled: Any) -> Any:
        found = of(cls, compiled)
        answers[found.ptx] = compiled
        return found

    def note(self: Any, report: Any, grid: Any, values: dict[str, Any]) -> None:
        compiled = answers[self.ptx]
        key = current[0], hashlib.sha256(self.ptx.encode()).hexdigest()
        flat = [leaf for name, kind in self.signature.items() for leaf in leaves(kind, values[name])]
        storages = {
            one.untyped_storage().data_ptr(): one.untyped_storage() for kind, one in flat if kind.startswith("*") and one is not None
        }
        size = sum(one.nbytes() for one in storages.values())
        if key not in seen and size <= _MOST and not self.limits:
            seen.add(key)
            number = len(described)
            cubin = digest(np.frombuffer(compiled.asm["cubin"], np.uint8))
            arrays[cubin] = np.frombuffer(compiled.asm["cubin"], np.uint8)
            places = list(storages)
            for index, one in enumerate(storages.values()):
                arrays[f"{number}.{index}"] = torch.tensor([], dtype=torch.uint8).set_(one).numpy().copy()
            passed = []
            for kind, one in flat:
                if not kind.startswith("*"):
                    passed.append([kind, one])
                elif one is None:
                    passed.append(["*", -1, 0])
                else:
                    start = one.untyped_storage().data_ptr()
                    passed.append(["*", places.index(start), one.data_ptr() - start])
            described.append(
                {
                    "case": current[0],
                    "kernel": self.name,
                    "cubin": cubin,
                    "threads": 32 * compiled.metadata.num_warps,
                    "shared": self.shared,
                    "grid": count_programs(grid),
                    "arguments": passed,
                    "signature": [kind for kind, _ in flat],
                }
            )
        run(self, report, grid, values)

    def leaves(kind: Any, value: Any) -> Any:
        from fastmma.triton.machine.launch import list_leaves

        return list_leaves(kind, value)

    executable.Executable.of = classmethod(keep)  # type: ignore[method-assign, assignment]
    executable.Executable.run = note  # type: ignore[method-assign]
    others = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float16, torch.float16: torch.bfloat16} if has_other_types else {}
    for case in libraries.installed([]):
        given = {name: replace(one, dtype=others.get(one.dtype, one.dtype)) for name, one in case.arguments.items()}
        case = replace(case, arguments=given)
        current[0] = f"{case.library}: {case.name}"
        outcome = libraries.run(case, seed, lowering="ptx")
        print(current[0], outcome.error or "", len(described), flush=True)
    ptx = {
        one: np.frombuffer(each.asm["ptx"].encode(), np.uint8)
        for each in answers.values()
        for one in [digest(np.frombuffer(each.asm["cubin"], np.uint8))]
    }
    np.savez_compressed(file, launches=np.array(json.dumps(described)), **arrays)
    np.savez_compressed(file.with_suffix(".ptx.npz"), **ptx)
    print(len(described), "launches,", len({one["cubin"] for one in described}), "kernels,", file.stat().st_size, "bytes")


def record(file: Path, results: Path) -> None:
    """Launch all that a file holds, twice, and write a digest of every array after each."""
    import cupy

    scalars = {"fp32": np.float32, "fp64": np.float64, "i64": np.int64, "i32": np.int32, "i1": np.bool_, "u1": np.bool_}
    scalars |= {"u64": np.uint64, "u32": np.uint32, "i8": np.int8, "i16": np.int16}
    found: dict[str, list[Any]] = {}
    with np.load(file) as built, TemporaryDirectory() as folder:
        kernels: dict[str, Any] = {}
        for number, launch in enumerate(json.loads(str(built["launches"]))):
            try:
                if launch["cubin"] not in kernels:
                    cubin = Path(folder, launch["cubin"])  # a file of its own for each, since CuPy keeps modules by path
                    cubin.write_bytes(built[launch["cubin"]].tobytes())
                    kernels[launch["cubin"]] = cupy.RawModule(path=str(cubin)).get_function(launch["kernel"])
                kernel = kernels[launch["cubin"]]
                if launch["shared"] > _MOST_SHARED:
                    kernel.max_dynamic_shared_size_bytes = launch["shared"]
                names = sorted(
                    (name for name in built.files if name.startswith(f"{number}.")), key=lambda name: int(name.partition(".")[2])
                )
                runs = []
                for _ in range(2):
                    arrays = [cupy.asarray(built[name]) for name in names]
                    passed = [
                        (np.uint64(arrays[one[1]].data.ptr + one[2]) if one[1] >= 0 else np.uint64(0))
                        if one[0] == "*"
                        else scalars[one[0]](one[1])
                        for one in launch["arguments"]
                    ]
                    scratch = cupy.zeros(_SCRATCH, np.uint8)
                    kernel(
                        tuple(launch["grid"]),
                        (launch["threads"],),
                        (*passed, np.uint64(scratch.data.ptr), np.uint64(scratch.data.ptr)),
                        shared_mem=launch["shared"],
                    )
                    cupy.cuda.runtime.deviceSynchronize()
                    runs.append([digest(cupy.asnumpy(one)) for one in arrays])
                    whole = [cupy.asnumpy(one) for one in arrays]
                found[str(number)] = runs
                for index, one in enumerate(whole):
                    if one.nbytes <= 1 << 13:
                        found[f"{number}.{index}"] = [one.tobytes().hex()]
            except Exception as error:  # one launch that fails leaves the others
                found[str(number)] = [f"{type(error).__name__}: {error}"]
                print(number, launch["case"], launch["kernel"], found[str(number)], flush=True)
    results.write_text(json.dumps(found))
    print(len(found), "entries")


def execute(launch: dict[str, Any], ptx: str, cubin: bytes, arrays: list[Any]) -> tuple[list[Any], set[str]]:
    """Execute a launch here on copies of its arrays, and return these with the statuses of the steps."""
    from fastmma.triton.machine.kernel import Machine
    from fastmma.triton.machine.launch import encode_argument

    machine = Machine(ptx, launch["shared"], "sm_90a", cubin)
    arrays = [np.concatenate([one, np.zeros(64, np.uint8)]) for one in arrays]  # lanes that are masked may lie beyond
    parameters = bytearray(max(one.place + one.size for one in machine.code.parameters.values()))
    for one, parameter in zip(launch["arguments"], machine.code.parameters.values(), strict=False):
        if one[0] == "*":
            code = (arrays[one[1]].ctypes.data + one[2] if one[1] >= 0 else 0).to_bytes(8, "little")
        else:
            code = encode_argument(one[0], one[1])
        parameters[parameter.place : parameter.place + len(code)] = code
    with np.errstate(all="ignore"):
        machine.run(tuple(launch["grid"]), bytes(parameters))
    return [one[:-64] for one in arrays], machine.statuses


def list_arrays(built: Any, number: int) -> list[Any]:
    """The arrays of a launch, in their order."""
    names = (name for name in built.files if name.startswith(f"{number}."))
    return [built[name] for name in sorted(names, key=lambda name: int(name.partition(".")[2]))]


def compare(file: Path, results: Path) -> None:
    """Execute the launches here, and print which of them leave what the GPU left."""
    from collections import Counter

    recorded = json.loads(results.read_text())
    counts: Counter[str] = Counter()
    with np.load(file) as built, np.load(file.with_suffix(".ptx.npz")) as texts:
        for number, launch in enumerate(json.loads(str(built["launches"]))):
            runs = recorded.get(str(number))
            if not runs or isinstance(runs[0], str):
                counts["not recorded"] += 1
                continue
            text, cubin = texts[launch["cubin"]].tobytes().decode(), built[launch["cubin"]].tobytes()
            left, statuses = execute(launch, text, cubin, list_arrays(built, number))
            here = [digest(one) for one in left]
            claimed = not {"unclear", "order"} & statuses
            what = "equal" if here == runs[0] else "the GPU differs from run to run" if runs[0] != runs[1] else "different"
            counts[f"{what}{'' if claimed else ', assumed'}"] += 1
            if what == "different":
                equal = [a == b for a, b in zip(here, runs[0], strict=True)]
                print(number, launch["case"], launch["kernel"], equal, "" if claimed else "assumed")
    print(dict(counts))


def keep(file: Path, results: Path, libraries: list[str]) -> None:
    """Write the launches of some libraries with what the GPU left, as the repository's test takes them.

    What is equal is written once, and machine code only where the bits depend on what ptxas fused. Launches that reports call assumed are
    left out where they differ.
    """
    recorded = json.loads(results.read_text())
    kept: dict[str, Any] = {}
    described = []

    def put(array: Any) -> str:
        kept[digest(array)] = array
        return digest(array)

    with np.load(file) as built, np.load(file.with_suffix(".ptx.npz")) as texts:
        for number, launch in enumerate(json.loads(str(built["launches"]))):
            runs = recorded.get(str(number))
            if launch["case"].partition(":")[0] not in libraries or not runs or runs[0] != runs[-1]:
                continue
            ptx = _PLACES.sub("", texts[launch["cubin"]].tobytes().decode()).partition("\t.section")[0]
            given = list_arrays(built, number)
            for cubin in (np.zeros(0, np.uint8), built[launch["cubin"]]):
                left, statuses = execute(launch, ptx, cubin.tobytes(), given)
                if [digest(one) for one in left] == runs[0]:
                    one = {name: launch[name] for name in ("case", "kernel", "shared", "grid", "arguments")}
                    one |= {
                        "ptx": put(np.frombuffer(ptx.encode(), np.uint8)),
                        "cubin": put(cubin),
                        "given": [put(array) for array in given],
                    }
                    described.append(one | {"left": runs[0]})
                    break
            else:
                print("left out:", launch["case"], launch["kernel"], sorted(statuses))
    np.savez_compressed(KEPT, launches=np.array(json.dumps(described)), **kept)
    print(len(described), "launches of", len({one["case"] for one in described}), "operations,", KEPT.stat().st_size, "bytes")


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]), int(sys.argv[3]), has_other_types=sys.argv[4:] == ["types"])
    elif sys.argv[1] == "record":
        record(Path(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1] == "keep":
        keep(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        compare(Path(sys.argv[2]), Path(sys.argv[3]))
