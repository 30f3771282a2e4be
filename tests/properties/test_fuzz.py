"""Calls drawn at random: right results with every option, and a FastmmaError or a right result after ten thousand mutations.

More than a minute of the first: ``FASTMMA_FUZZ_MINUTES=60 FASTMMA_FUZZ_SEED=1 python -m pytest -s tests/properties/test_fuzz.py -k cases``.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from drivers.cases import OF_A_SEED, Case, drawn, gemm_case, one_of, tiles_case, warp_case, warpgroup_case
from drivers.checks import check
from hypothesis import given
from hypothesis import strategies as st
from reference.paths import taking

import fastmma
from fastmma import TARGETS, FastmmaError, Instruction, Movement, instruction, sparse, warp
from fastmma.operands import scales

MINUTES, FIRST_SEED = float(os.environ.get("FASTMMA_FUZZ_MINUTES", "0")), int(os.environ.get("FASTMMA_FUZZ_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + 20)
OPCODES, REGISTERS, MATRICES, PRODUCTS, MOVES, DESCRIPTORS = 250, 80, 60, 30, 50, 30  # mutations a seed: 500
BETWEEN_GUARDS = 6 if sys.platform == "linux" else 0  # the cases of so many seeds are computed by test_guard_pages.py, and compared alike
CHECKED = 4  # one result in so many is compared with the reference

EVERYTHING = fastmma.instructions()
WARP = [ins for ins in EVERYTHING if isinstance(ins, Instruction) and ins.op != "wgmma"]
MOVE = [ins for ins in EVERYTHING if isinstance(ins, Movement)]
STRANGE = ("", "relu", "m16n8k12", "f64x", "é", "sp::", "x3", "\0", " ")
TOKENS = (*sorted({token for ins in EVERYTHING for token in ins.opcode.split(".")}), *STRANGE)
# what nobody should pass
JUNK: tuple[Any, ...] = (None, "", "abc", 1.5, True, -1, 1 << 80, object(), [], [[1], [1, 2]], {}, b"x", np.zeros(3), np.float32(2), 3 + 4j)


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """How many cases had what, printed when all are done."""
    found: Counter[str] = Counter()
    yield found
    print("\n" + "\n".join(f"{count:>9} {what}" for what, count in sorted(found.items())))


@pytest.mark.parametrize("seed", SEEDS[BETWEEN_GUARDS:])
def test_cases(seed: int, counts: Counter[str]) -> None:
    deadline = time.monotonic() + 60 * MINUTES / len(SEEDS)
    index = 0
    while index < OF_A_SEED or time.monotonic() < deadline:
        rng, family, case = drawn(seed, index)
        try:
            check(rng, case, counts)
        except Exception as error:
            error.add_note(f"{family}, the case of default_rng([{seed}, {index}]): {case.arguments}")
            raise
        index += 1


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


def run(rng: np.random.Generator, case: Case) -> None:
    """Execute a case on portable kernels, mostly with something wrong; one success in so many is compared with the reference."""
    arguments = {**case.arrays, **case.arguments}
    if rng.random() < 0.6:
        arguments = spoilt(rng, arguments)
    if rng.random() < 0.1:
        arguments = {**arguments, "target": rng.choice([*TARGETS, "sm_1", ""])}
    with taking("portable"):
        result = attempt(lambda: case.call(**arguments))
    if result is not None and result.size and rng.integers(CHECKED) == 0:
        same(result, case.call(**arguments, backend="reference"))


@pytest.mark.parametrize("seed", SEEDS)
def test_registers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(REGISTERS):
        run(rng, warp_case(rng))


@pytest.mark.parametrize("seed", SEEDS)
def test_matrices(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    for _ in range(MATRICES):
        run(rng, tiles_case(rng))


@pytest.mark.parametrize("seed", SEEDS)
def test_products(seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    for _ in range(PRODUCTS):
        case = gemm_case(rng)
        if rng.random() < 0.3:
            case.arguments["split_k"] = int(rng.integers(0, 4))
        if rng.random() < 0.3:
            case.arguments["promote_every"] = int(one_of(rng, [16, 64, 3, 0]))
        if rng.random() < 0.3:
            case.arguments["threads"] = int(rng.integers(0, 4))
        run(rng, case)


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
        case = warpgroup_case(rng)
        if rng.random() < 0.5:
            case.arguments["b"] = int(rng.integers(1 << 63)) * 2
        if rng.random() < 0.2:
            case.arrays["memory"] = case.arrays["memory"][:, :1000]
        if rng.random() < 0.5:
            case.arguments.update({"imm_scale_a": int(rng.choice([1, -1, 1, 2])), "imm_trans_b": int(rng.integers(2))})
        run(rng, case)


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
