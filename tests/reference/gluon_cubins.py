"""Ask the machine code of Gluon kernels on a GPU: it is compiled where Triton is, which needs no GPU.

``python -m tests.reference.gluon_cubins build FILE`` compiles the launches of tests/integrations/gluon/launches.py for an H100, and
writes them with their arguments. ``python gluon_cubins.py record FILE RESULTS KERNEL`` on the machine with the GPU, which needs this
module, NumPy and torch, writes what those of one kernel computed. ``tests.reference.triton_cubins shorten`` keeps what tests compare.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

TARGET = "sm_90a"
_SCRATCH = 1 << 20  # bytes behind the two pointers that follow the arguments of each kernel
_MAXIMUM_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_TYPES = {"e4m3": 0, "e5m2": 0, "s8": 0, "f16": 6, "f32": 7, "s32": 3, "bf16": 9}  # CUtensorMapDataType


def build(file: Path) -> None:
    """Compile all launches into one file: their machine code, their arguments, and how they are launched."""
    from unittest.mock import patch

    import triton

    from fastmma.triton.driver import Driver
    from tests.integrations.gluon.launches import Array, Tiled, launches, tensor

    described: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    with patch.object(triton.runtime.driver, "_active", Driver(lambda: SimpleNamespace(target=TARGET))):
        for number, launch in enumerate(launches()):
            drawn = launch.drawn()
            given = launch.arguments({name: tensor(array) for name, array in drawn.items()})
            made = launch.kernel.run(**given, **launch.options, grid=launch.grid, warmup=True, enable_fp_fusion=True)
            arrays[f"{number}.cubin"] = np.frombuffer(made.asm["cubin"], np.uint8)
            arrays |= {f"{number} {name}": array.view(f"u{array.itemsize}") for name, array in drawn.items()}
            passed: list[Any] = []
            swizzles = iter(made.metadata.tensordesc_meta or ())
            for parameter in launch.kernel.params:
                value = launch.named.get(parameter.name)
                if isinstance(value, Tiled):
                    box = next(swizzles)
                    passed.append(["map", parameter.name, value.array.format, box["swizzle"], box["block_size"]])
                elif isinstance(value, Array):
                    passed.append(["pointer", parameter.name])
                elif not parameter.is_constexpr and value != 1:
                    passed.append(["f32" if isinstance(value, float) else "i32", value])
            described[launch.name] = {
                "number": number,
                "entry": made.metadata.name,
                "threads": int(re.search(r"\.reqntid (\d+)", made.asm["ptx"])[1]),
                "parameters": len(re.findall(r"\.param .*_param_\d+", made.asm["ptx"].partition(")")[0])),
                "shared": made.metadata.shared,
                "grid": launch.grid,
                "ctas": launch.options.get("num_ctas", 1),
                "results": launch.results,
                "arguments": passed,
            }
    np.savez_compressed(file, launches=np.array(json.dumps(described)), **arrays)
    print(len(described), "launches")


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of a cluster's dimensions."""

    _fields_ = (("id", ctypes.c_uint64), ("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint), ("rest", ctypes.c_uint * 13))


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver returned {status}")


def _map(driver: Any, tensor: Any, fmt: str, swizzle: int, box: list[int]) -> Any:
    """Encode the map of a tensor in 128 bytes, which the driver wants at a multiple of 64."""
    memory = ctypes.create_string_buffer(192)
    address = (ctypes.addressof(memory) + 63) & ~63
    shape, rank = list(tensor.shape)[::-1], tensor.dim()
    strides = [tensor.stride(dimension) * tensor.element_size() for dimension in range(rank - 2, -1, -1)]
    _check(
        driver.cuTensorMapEncodeTiled(
            ctypes.c_void_p(address),
            _TYPES[fmt],
            rank,
            ctypes.c_void_p(tensor.data_ptr()),
            (ctypes.c_uint64 * rank)(*shape),
            (ctypes.c_uint64 * rank)(*strides, 0),
            (ctypes.c_uint32 * rank)(*box[::-1]),
            (ctypes.c_uint32 * rank)(*(1,) * rank),
            0,
            swizzle,
            _PROMOTION,
            0,
        )
    )
    return memory, address


def launched(driver: Any, built: Any, launch: dict[str, Any]) -> dict[str, Any]:
    """Launch one, and take the arrays that it leaves."""
    import torch

    number = launch["number"]
    code = built[f"{number}.cubin"].tobytes()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), code))
    _check(driver.cuModuleGetFunction(ctypes.byref(function), module, launch["entry"].encode()))
    _check(driver.cuFuncSetAttribute(function, _MAXIMUM_SHARED, launch["shared"]))
    kinds = {1: np.uint8, 2: np.int16, 4: np.int32}
    arrays = {name.partition(" ")[2]: built[name] for name in built.files if name.partition(" ")[0] == str(number)}
    tensors = {name: torch.from_numpy(array.view(kinds[array.itemsize]).copy()).cuda() for name, array in arrays.items()}
    kept: list[Any] = []
    addresses: list[int] = []

    def add(value: Any) -> None:
        kept.append(value)
        addresses.append(ctypes.addressof(value))

    for kind, value, *rest in launch["arguments"]:
        if kind == "map":
            memory, address = _map(driver, tensors[value], *rest)
            kept.append(memory)
            addresses.append(address)
            for size in tensors[value].shape:
                add(ctypes.c_int32(size))
            for size in tensors[value].stride():
                add(ctypes.c_int64(size))
        elif kind == "pointer":
            add(ctypes.c_uint64(tensors[value].data_ptr()))
        else:
            add({"i32": ctypes.c_int32, "f32": ctypes.c_float}[kind](value))
    scratch = torch.zeros(_SCRATCH, dtype=torch.uint8, device="cuda")
    for _ in range(2):
        add(ctypes.c_uint64(scratch.data_ptr()))
    if len(addresses) != launch["parameters"]:
        raise RuntimeError(f"{len(addresses)} arguments for {launch['parameters']} parameters")
    torch.cuda.synchronize()
    first, *others = (*launch["grid"], 1, 1)[:3]
    parameters = (ctypes.c_void_p * len(addresses))(*addresses)
    cluster = _Attribute(_CLUSTER, launch["ctas"], 1, 1)
    if launch["ctas"] > 8:
        _check(driver.cuFuncSetAttribute(function, _LARGE_CLUSTERS, 1))
    configuration = _Configuration(
        (first * launch["ctas"], *others), (launch["threads"], 1, 1), launch["shared"], None, ctypes.pointer(cluster), launch["ctas"] > 1
    )
    _check(driver.cuLaunchKernelEx(ctypes.byref(configuration), function, parameters, None))
    torch.cuda.synchronize()
    return {name: tensors[name].cpu().numpy().view(arrays[name].dtype) for name in launch["results"]}


def record(file: Path, results: Path, kernel: str = "") -> None:
    """Launch all that a file holds, or those of one kernel, and write the arrays that they leave."""
    import torch

    torch.zeros(1, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    found: dict[str, Any] = {}
    with np.load(file) as built:
        for name, launch in json.loads(str(built["launches"])).items():
            if not name.startswith(str(kernel)):
                continue
            try:
                found |= {f"{name} -> {kind}": array for kind, array in launched(driver, built, launch).items()}
            except Exception as error:  # the others count all the same
                print(name, type(error).__name__, error, flush=True)
                if "700" in str(error) or "CUDA" in str(error):
                    break  # the context is lost
    np.savez_compressed(results, **found)
    print(len(found), "results,", torch.cuda.get_device_name())


if __name__ == "__main__":
    {"build": build, "record": record}[sys.argv[1]](*map(Path, sys.argv[2:]))
