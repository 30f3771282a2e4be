"""Ten thousand mutations of opcodes, operands, selectors, metadata and shapes: a right result, or a FastmmaError, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, TARGETS, FastmmaError, Instruction, Movement, gemm, instruction, sparse, warp, warpgroup
from fastmma.isa.formats import from_codes
from fastmma.isa.scales import scale_selectors
from fastmma.isa.sparsity import metadata_layout, pattern_of, selectors
from fastmma.operands import scales
from fastmma.operands.registers import register_dtype

SEEDS = range(20)
OPCODES, REGISTERS, MATRICES, PRODUCTS, MOVES, DESCRIPTORS = 250, 80, 60, 30, 50, 30  # mutations a seed: 500
CHECKED = 4  # one result in so many is compared with the reference

EVERYTHING = fastmma.instructions()
# wide wgmma only takes longer
MULTIPLY = [ins for ins in EVERYTHING if isinstance(ins, Instruction) and ins.n <= 32]
WARP = [ins for ins in MULTIPLY if ins.op != "wgmma"]
WARPGROUP = [ins for ins in MULTIPLY if ins.op == "wgmma" and ins.n <= 16]
MOVE = [ins for ins in EVERYTHING if isinstance(ins, Movement)]
STRANGE = ("", "relu", "m16n8k12", "f64x", "é", "sp::", "x3", "\0", " ")
TOKENS = (*sorted({token for ins in EVERYTHING for token in ins.opcode.split(".")}), *STRANGE)
# what nobody should pass
JUNK: tuple[Any, ...] = (None, "", "abc", 1.5, True, -1, 1 << 80, object(), [], [[1], [1, 2]], {}, b"x", np.zeros(3), np.float32(2), 3 + 4j)


def attempt(call: Callable[[], Any]) -> Any:
    """The result, or None after a FastmmaError."""
    try:
        return call()
    except FastmmaError:
        return None


def mutated_opcode(rng: random.Random, opcode: str) -> str:
    tokens = opcode.split(".")
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.randrange(len(tokens) + 1)
        change = rng.randrange(6)
        if change == 0:
            tokens.insert(place, rng.choice(TOKENS))
        elif change == 1 and tokens:
            tokens.pop(place - 1)
        elif change == 2 and tokens:
            tokens[place - 1] = rng.choice(TOKENS)
        elif change == 3:
            rng.shuffle(tokens)
        elif change == 4 and tokens:
            token = tokens[place - 1]
            at = rng.randrange(len(token) + 1)
            tokens[place - 1] = token[:at] + rng.choice("0123456789abcmnkx:_ .;\n") + token[at + rng.randrange(2) :]
        else:
            tokens += tokens[place:]
    return ".".join(tokens)


@pytest.mark.parametrize("seed", SEEDS)
def test_opcodes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(OPCODES):
        text = mutated_opcode(rng, rng.choice(EVERYTHING).opcode)
        found = attempt(lambda text=text: instruction(text))  # type: ignore[misc]
        if found is not None:
            assert instruction(found.opcode) is found
            assert sorted(found.opcode.split(".")[0]) == sorted(text.strip().split(".")[0])
            assert set(found.targets) <= set(TARGETS)


@given(st.text(max_size=80) | st.lists(st.sampled_from(TOKENS), max_size=12).map(".".join))
def test_any_text(text: str) -> None:
    attempt(lambda: instruction(text))


def codes(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Codes of every kind: any, or small ones, or few different ones."""
    fmt = FORMATS[name]
    bits = fmt.bits - fmt.padding
    drawn = rng.integers(0, 1 << bits, shape, dtype=np.uint64)
    kind = rng.integers(4)
    if kind == 1:
        drawn = rng.choice(rng.integers(0, 1 << bits, 4, dtype=np.uint64), shape)
    elif kind == 2:
        drawn >>= np.uint64(bits // 2)
    return (drawn << np.uint64(fmt.padding)).astype(fmt.code_dtype)


def registers(rng: np.random.Generator, operand: fastmma.Operand, lead: tuple[int, ...]) -> NDArray[Any]:
    dtype = register_dtype(operand)
    return rng.integers(0, 1 << 8 * dtype.itemsize, (*lead, operand.layout.lanes, operand.registers), dtype=dtype)


def valid_metadata(rng: np.random.Generator, ins: Instruction, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    rule = pattern_of(ins)
    words = np.array([word for word, _ in rule.words[: rule.ordered if ins.ordered_metadata else None]], np.uint8)
    return rng.choice(words, shape)


def spoilt(rng: np.random.Generator, arguments: dict[str, Any]) -> dict[str, Any]:
    """One argument changed: dropped dimensions, another dtype, other values, or junk."""
    name = str(rng.choice(sorted(arguments)))
    value = arguments[name]
    changes: list[Callable[[], Any]] = [lambda: JUNK[int(rng.integers(len(JUNK)))], lambda: int(rng.integers(-2, 9))]
    if isinstance(value, np.ndarray):
        other = rng.choice([np.uint8, np.int32, np.uint32, np.uint64, np.float16, np.float32, np.bool_])
        changes += [
            lambda: value[..., :-1],
            lambda: value[..., None],
            lambda: value[:0],
            lambda: value.reshape(-1),
            lambda: value.swapaxes(0, -1),
            lambda: value.astype(other) if value.dtype.kind in "uif" else value,
            lambda: value.view(np.uint8),
            lambda: value.astype(value.dtype.newbyteorder(">")) if value.dtype.kind in "uif" else value,
            lambda: value.tolist(),
            lambda: (
                rng.integers(0, 256, value.nbytes, dtype=np.uint8).view(value.dtype.str).reshape(value.shape)
                if value.dtype.kind in "ui"
                else value
            ),
        ]
    with np.errstate(all="ignore"):
        return {**arguments, name: changes[int(rng.integers(len(changes)))]()}


def same(x: Any, y: Any) -> None:
    assert x.dtype == y.dtype
    np.testing.assert_array_equal(np.ascontiguousarray(x).view(np.uint8), np.ascontiguousarray(y).view(np.uint8))


def run(rng: np.random.Generator, call: Callable[..., Any], ins: Instruction, arguments: dict[str, Any]) -> None:
    """Execute; one success in so many is compared with the reference."""
    if rng.random() < 0.6:
        arguments = spoilt(rng, arguments)
    if rng.random() < 0.1:
        arguments = {**arguments, "target": rng.choice([*TARGETS, "sm_1", ""])}
    result = attempt(lambda: call(ins, **arguments))
    if result is not None and result.size and rng.integers(CHECKED) == 0:
        same(result, call(ins, **arguments, backend="reference"))


def target_of(rng: np.random.Generator, ins: Instruction) -> str:
    return str(rng.choice(ins.targets))


@pytest.mark.parametrize("seed", SEEDS)
def test_registers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(REGISTERS):
        ins = WARP[int(rng.integers(len(WARP)))]
        lead = ((), (1,), (2,), (0,))[int(rng.integers(4))]
        arguments: dict[str, Any] = {name: registers(rng, ins.operands[name], lead) for name in "abc"}
        arguments["target"] = target_of(rng, ins)
        if ins.sparse:
            arguments["selector"] = int(rng.choice(selectors(ins)))
            words = valid_metadata(rng, ins, (*lead, *metadata_layout(ins).shape))
            arguments["metadata"] = sparse.pack_metadata(ins, words, selector=arguments["selector"])
        if ins.scale_vec_size:
            for operand, lines in (("a", ins.m), ("b", ins.n)):
                byte_ids, thread_ids = scale_selectors(ins, operand)
                byte_id, thread_id = int(rng.choice(byte_ids)), int(rng.choice(thread_ids))
                top = 256 if ins.stype == "ue8m0" else 128
                given_scales = rng.integers(0, top, (*lead, lines, ins.scale_vec_size), dtype=np.uint8)
                arguments |= {
                    f"scale_{operand}": scales.pack_scales(ins, given_scales, operand, byte_id, thread_id),
                    f"byte_id_{operand}": byte_id,
                    f"thread_id_{operand}": thread_id,
                }
        run(rng, warp.mma, ins, arguments)


def matrix_arguments(rng: np.random.Generator, ins: Instruction, m: int, n: int, k: int, lead: tuple[int, ...] = ()) -> dict[str, Any]:
    shapes = {"a": (ins.atype, m, k * ins.stored_k // ins.k), "b": (ins.btype, k, n), "c": (ins.ctype, m, n)}
    arguments: dict[str, Any] = {
        name: from_codes(codes(rng, fmt, (*lead, rows, columns)), fmt) for name, (fmt, rows, columns) in shapes.items()
    }
    if ins.sparse:
        arguments["metadata"] = valid_metadata(rng, ins, (*lead, m, k // pattern_of(ins).chunk))
    if ins.scale_vec_size:
        count = -(-k * ins.scale_vec_size // ins.k)
        dtype, top = (ml_dtypes.float8_e8m0fnu, 256) if ins.stype == "ue8m0" else (ml_dtypes.float8_e4m3fn, 128)
        for name, shape in (("scale_a", (m, count)), ("scale_b", (count, n))):
            arguments[name] = rng.integers(0, top, (*lead, *shape), dtype=np.uint8).view(dtype)
    arguments["target"] = target_of(rng, ins)
    return arguments


@pytest.mark.parametrize("seed", SEEDS)
def test_matrices(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    for _ in range(MATRICES):
        ins = MULTIPLY[int(rng.integers(len(MULTIPLY)))]
        lead = ((), (1,), (2,), (0,))[int(rng.integers(4))]
        run(rng, fastmma.mma, ins, matrix_arguments(rng, ins, ins.m, ins.n, ins.k, lead))


def product(ins: Instruction, a: Any, b: Any, **rest: Any) -> Any:
    return gemm(a, b, instruction=ins, **rest)


@cache
def gemm_instructions() -> list[Instruction]:
    return [ins for ins in MULTIPLY if ins.ctype == ins.dtype]


@pytest.mark.parametrize("seed", SEEDS)
def test_products(seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    for _ in range(PRODUCTS):
        ins = gemm_instructions()[int(rng.integers(len(gemm_instructions())))]
        chunk = pattern_of(ins).chunk if ins.sparse else 1
        m, n = int(rng.integers(0, 7)), int(rng.integers(0, 7))
        k = int(rng.integers(0, 2 * ins.k + 3)) // chunk * chunk
        arguments = matrix_arguments(rng, ins, m, n, k)
        if rng.random() < 0.3:
            arguments["split_k"] = int(rng.integers(0, 4))
        if rng.random() < 0.3:
            arguments["promote_every"] = int(rng.choice([ins.k, 2 * ins.k, 3, 0]))
        if rng.random() < 0.3:
            arguments["threads"] = int(rng.integers(0, 4))
        if rng.random() < 0.2:
            del arguments["c"]
        run(rng, product, ins, arguments)


@pytest.mark.parametrize("seed", SEEDS)
def test_moves(seed: int) -> None:
    rng = np.random.default_rng(3000 + seed)
    for _ in range(MOVES):
        move = MOVE[int(rng.integers(len(MOVE)))]
        memory = rng.integers(0, 256, (2, int(rng.choice([0, 100, 4096, 16384]))), dtype=np.uint8)
        dtype = np.uint64 if "f64" in move.opcode else np.uint32
        held = rng.integers(0, 1 << 8 * dtype().itemsize, (32, move.registers), dtype=dtype)
        addresses = rng.integers(0, 260, 32) * 16
        stride = int(rng.choice([8, 16, 32, 64, 128, 136, 7]))
        calls: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
            "ldmatrix": (warp.ldmatrix, {"memory": memory, "addresses": addresses}),
            "stmatrix": (warp.stmatrix, {"memory": memory, "addresses": addresses, "registers": held}),
            "movmatrix": (warp.movmatrix, {"registers": held[:, 0]}),
            "wmma.load": (warp.wmma_load, {"memory": memory, "stride": stride, "target": "sm_90a"}),
            "wmma.store": (warp.wmma_store, {"memory": memory, "registers": held, "stride": stride, "target": "sm_90a"}),
        }
        call, arguments = calls[move.op]
        if rng.random() < 0.6:
            arguments = spoilt(rng, arguments)
        before = memory.copy()
        opcode = mutated_opcode(random.Random(seed), move.opcode) if rng.random() < 0.1 else move
        result = attempt(lambda call=call, opcode=opcode, arguments=arguments: call(opcode, **arguments))  # type: ignore[misc]
        assert result is None or result.dtype.kind == "u"
        np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize("seed", SEEDS)
def test_descriptors(seed: int) -> None:
    rng = np.random.default_rng(4000 + seed)
    for _ in range(DESCRIPTORS):
        ins = WARPGROUP[int(rng.integers(len(WARPGROUP)))]
        used = (0xFF, 0xFF << 16, 0xFF << 32, 7 << 49, 3 << 62)
        bits = [sum(int(rng.integers(1 << 63)) * 2 & mask for mask in used) for _ in range(2)]
        in_memory = rng.random() < 0.5
        arguments: dict[str, Any] = {
            "d": registers(rng, ins.operands["d"], ()),
            "a": bits[0] if in_memory else registers(rng, ins.operands["a"], ()),
            "b": bits[1],
            "memory": rng.integers(0, 256, (1, int(rng.choice([1000, 1 << 16, 1 << 17]))), dtype=np.uint8),
            "scale_d": int(rng.integers(2)),
            "target": "sm_90a",
        }
        if rng.random() < 0.5:
            arguments |= {"imm_scale_a": int(rng.choice([1, -1, 1, 2])), "imm_trans_b": int(rng.integers(2))}
        if ins.sparse:
            arguments["metadata"] = sparse.pack_metadata(ins, valid_metadata(rng, ins, metadata_layout(ins).shape))
            arguments["selector"] = 0
        run(rng, warpgroup.mma, ins, arguments)


@pytest.mark.parametrize("seed", SEEDS)
def test_metadata_and_scales(seed: int) -> None:
    rng = np.random.default_rng(5000 + seed)
    helpers: list[tuple[Callable[..., Any], str]] = [
        (sparse.pack_metadata, "metadata"),
        (sparse.unpack_metadata, "registers"),
        (scales.pack_scales, "scales"),
        (scales.unpack_scales, "registers"),
        (sparse.compress, "a"),
        (sparse.decompress, "stored"),
    ]
    for _ in range(20):
        call, name = helpers[int(rng.integers(len(helpers)))]
        ins = WARP[int(rng.integers(len(WARP)))]
        arguments: dict[str, Any] = {name: rng.integers(0, 16, (16, int(rng.choice([2, 4, 8, 16]))), dtype=np.uint8)}
        if name == "registers":
            arguments[name] = rng.integers(0, 1 << 32, int(rng.choice([32, 128, 31])), dtype=np.uint32)
        if call in (sparse.pack_metadata, sparse.unpack_metadata):
            arguments |= {"ins": ins, "selector": int(rng.integers(-1, 5))}
        elif call in (scales.pack_scales, scales.unpack_scales):
            arguments |= {"ins": ins, "operand": str(rng.choice(["a", "b", "c"])), "byte_id": 0, "thread_id": 0}
        else:
            arguments |= {"pattern": rng.choice([None, "2:4", "1:2", "4:8", "x"])}
            if call is sparse.decompress:
                arguments["metadata"] = rng.integers(3, 16, arguments[name].shape)
        changed = spoilt(rng, arguments)
        attempt(lambda call=call, changed=changed: call(**changed))  # type: ignore[misc]


def test_ten_thousand() -> None:
    assert len(SEEDS) * (OPCODES + REGISTERS + MATRICES + PRODUCTS + MOVES + DESCRIPTORS) >= 10_000
