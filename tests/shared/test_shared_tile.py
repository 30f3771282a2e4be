"""Tiles: where their elements are, staged and read back, by ldmatrix and by descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.descriptor import byte_offset

import fastmma
from fastmma import FORMATS, OperandError, OperandTypeError, tcgen05, warp, warpgroup
from fastmma.isa.codes import from_codes
from fastmma.shared import Swizzle, Tile, bank_conflicts

RNG = np.random.default_rng(0)


def elements(shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """Any codes of a format but NaNs, which are not equal to themselves."""
    fmt = FORMATS[name]
    found = from_codes(RNG.integers(0, 1 << min(fmt.bits, 8), shape).astype(fmt.code_dtype), fmt)
    return np.where(found == found, found, np.zeros_like(found)).astype(fmt.dtype)


@pytest.mark.parametrize("name", FORMATS)
def test_stored_and_loaded(name: str) -> None:
    for swizzle in (0, 32, 64, 128, Swizzle(2, 5, 2), Swizzle(2, 4, -3)):
        for padded in {False, FORMATS[name].bits in (4, 6)}:
            tile = Tile(24, 64, name, address=2048, pitch=1024 if swizzle else 0, swizzle=swizzle, padded=padded)
            wanted = elements((2, 24, 64), name)
            assert tile.load(np.zeros((0, 3, tile.end), np.uint8)).shape == (0, 3, 24, 64)
            before = RNG.integers(0, 256, tile.end, dtype=np.uint8)
            after = tile.store(before, wanted)
            assert after.shape == (2, tile.end)
            assert (tile.load(after) == wanted).all()
            untouched = np.ones(tile.end, bool)
            untouched[tile.places] = False
            assert (after[:, untouched] == before[untouched]).all()


@pytest.mark.parametrize(("name", "bits"), [("e4m3", 8), ("e2m1", 4), ("e3m2", 6), ("tf32", 32)])
def test_bytes_by_hand(name: str, bits: int) -> None:
    """Codes follow each other from the lowest bits up; 128-byte rows exchange their 16-byte units by the row's number."""
    columns = 128 * 8 // bits // 16 * 16
    tile = Tile(16, columns, name, pitch=128, swizzle=128)
    wanted = elements((16, columns), name)
    codes = wanted.view(FORMATS[name].code_dtype).astype(object)
    memory = tile.store(np.zeros(tile.end, np.uint8), wanted)
    for row in (0, 5, 13):
        line = sum(int(code) << bits * place for place, code in enumerate(codes[row])).to_bytes(128, "little")
        units = [memory[row * 128 + (unit ^ row % 8) * 16 :][:16].tobytes() for unit in range(8)]
        assert b"".join(units) == line
        assert int(tile.addresses(row, 0)) == row * 128 + row % 8 * 16


def test_padded_units_are_what_ldmatrix_expands() -> None:
    wanted = elements((8, 16), "e2m1")
    tile = Tile(8, 16, "e2m1", padded=True)
    memory = tile.store(np.zeros(tile.end, np.uint8), wanted)
    registers = warp.ldmatrix("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64", memory, tile.addresses(np.arange(32) % 8))
    move = next(each for each in fastmma.instructions(op="ldmatrix") if each.opcode.endswith("m8n16.x1.b8x16.b4x16_p64"))
    held = np.zeros((8, 16), np.uint8)
    held[move.layout.rows, move.layout.cols] = registers.view(np.uint8).reshape(32, -1)
    assert (held == wanted.view(np.uint8) << 2).all()


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("mn_major", [False, True])
def test_descriptors_find_the_elements(swizzle: int, mn_major: bool) -> None:
    """Two tiles side by side, whose descriptor PTX's canonical layouts read."""
    width = max(swizzle, 16) // 2
    tiles = [Tile(32, width, "f16", address=4096 * place, swizzle=swizzle) for place in (1, 2)]
    wanted = np.arange(64 * width).reshape(32, 2 * width).view(np.uint16)[:, ::4].view(np.float16)
    memory = np.zeros(tiles[1].end, np.uint8)
    for place, tile in enumerate(tiles):
        memory = tile.store(memory, wanted[:, place * width : (place + 1) * width])
    row, column = (8, 0) if mn_major else (8, width // 2 if swizzle else 0)
    for instruction in ("wgmma", "tcgen05"):
        found = tiles[0].descriptor(row, column, mn_major=mn_major, beside=4096, instruction=instruction)  # type: ignore[arg-type]
        fields = {name: getattr(found, name) for name in ("address", "leading", "stride", "swizzle")}
        wide = mn_major or not swizzle  # only there operands go on in the next tile
        across = 2 * width if wide else width - column
        for line in range(16):
            for along in range(across):
                outer, k = (along, line) if mn_major else (line, along)
                place = byte_offset(outer, k, 16, mn_major=mn_major, **fields)
                assert memory[place : place + 2].view(np.float16)[0] == wanted[row + line, column + along]


def test_multiplied_by_wgmma_and_tcgen05() -> None:
    a, b = (RNG.standard_normal((128, 64)).astype(np.float16) for _ in range(2))
    ta = Tile(128, 64, "f16", swizzle=128)
    tb = Tile(128, 64, "f16", address=ta.end, swizzle=128)
    memory = tb.store(ta.store(np.zeros(tb.end, np.uint8), a), b)
    opcode = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
    d = np.zeros((128, 64), np.uint32)
    for k in range(0, 64, 16):
        d = warpgroup.mma(opcode, d, ta.descriptor(64, k), tb.descriptor(0, k), memory=memory)
    found = fastmma.gather(d, fastmma.instruction(opcode).operands["d"]).view(np.float32)
    assert (found == fastmma.gemm(a[64:], b.T, instruction=opcode, target="sm_90a")).all()
    ins = tcgen05.instruction("f16", "f32", "f16", "f16", m=128, n=128)
    described = [tile.descriptor(0, 16, instruction="tcgen05") for tile in (ta, tb)]
    empty = np.zeros((128, 512), np.uint32)
    cells = tcgen05.mma(ins, 0, *described, target="sm_100a", tmem=empty, memory=memory, enable_input_d=False)
    wanted = fastmma.mma(ins, a[:, 16:32], b.T[16:32], np.zeros((128, 128), np.float32), target="sm_100a")
    assert (cells[:, :128].view(np.float32) == wanted).all()


def test_wide_atoms() -> None:
    tile = Tile(8, 32, "tf32", swizzle=Swizzle(2, 5, 2))
    wanted = elements((8, 32), "tf32")
    memory = tile.store(np.zeros(tile.end, np.uint8), wanted)
    described = tile.descriptor(mn_major=True, instruction="tcgen05")
    assert isinstance(described, tcgen05.MatrixDescriptor)
    assert described.wide_atoms
    assert (memory.view(np.float32)[described.offsets(32, 8, 32, mn_major=True) // 4] == wanted.T).all()
    with pytest.raises(OperandError, match="a descriptor of wgmma has no Swizzle<2,5,2>"):
        tile.descriptor(mn_major=True)


def words_of_banks(addresses: NDArray[Any], width: int) -> list[int]:
    """For each phase of 128 bytes, the most different words that are wanted of one bank."""
    together = min(32, 128 // width)
    found = []
    for start in range(0, len(addresses), together):
        wanted = {(int(address) + byte) // 4 for address in addresses[start : start + together] for byte in range(width)}
        found.append(max(sum(word % 32 == bank for word in wanted) for bank in range(32)))
    return found


def test_bank_conflicts() -> None:
    for width in (1, 2, 4, 8, 16):
        for stride in (1, 2, 3, 8, 32, 33):
            addresses = np.arange(32) * stride * width
            assert list(bank_conflicts(addresses, width).wavefronts) == words_of_banks(addresses, width)
        addresses = RNG.integers(0, 256, 32) * width
        assert list(bank_conflicts(addresses, width).wavefronts) == words_of_banks(addresses, width)
    assert bank_conflicts(np.zeros(32, int), 4).degree == 1  # one word for all lanes
    column = bank_conflicts(np.arange(32) * 128, 4)
    assert (column.degree, column.conflicts, column.banks) == (32, 31, ((0,),))
    half = bank_conflicts(np.arange(32) * 128, 4, active=np.arange(32) < 16)
    assert half.degree == 16
    nobody = bank_conflicts(np.arange(32) * 4, 4, active=np.zeros(32, bool))
    assert (nobody.wavefronts, nobody.conflicts) == ((0,), 0)
    for swizzle, degree in ((0, 8), (32, 4), (64, 2), (128, 1)):  # eight rows of 128 bytes, one unit of each
        assert bank_conflicts(Tile(8, 64, "f16", swizzle=swizzle).addresses(np.arange(8)), 16).degree == degree


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tile(8, 8, "f16", pitch=8), "pitch must be at least the 16 bytes"),
        (lambda: Tile(8, 64, "f16", address=64, swizzle=128), "multiple of the 128 bytes"),
        (lambda: Tile(8, 3, "e2m1"), "no whole number of bytes"),
        (lambda: Tile(8, 16, "f16", padded=True), "only elements of 4 or 6 bits"),
        (lambda: Tile(8, 16, "f64", swizzle=Swizzle(2, 2, 3)), "takes elements of 8 bytes apart"),
        (lambda: Tile(0, 16, "f16"), "rows of a tile must be an integer of at least 1"),
        (lambda: Tile(8, 8, "f16").addresses(8), "there is no row 8"),
        (lambda: Tile(8, 8, "f16").addresses([0, 1], [0, 1, 2]), "do not broadcast"),
        (lambda: Tile(8, 8, "f16").load(np.zeros(100, np.uint8)), "reaches byte 127 of a memory of 100"),
        (lambda: Tile(8, 8, "f16").store(np.zeros(128, np.uint8), np.zeros((8, 9), np.float16)), r"shape \(..., 8, 8\)"),
        (lambda: Tile(8, 64, "f16").descriptor(), "must be 16 bytes apart, not 128"),
        (lambda: Tile(64, 64, "f16", swizzle=128).descriptor(4), "begins at a multiple of 8 rows"),
        (lambda: bank_conflicts(np.arange(32), 4), "lane 1, 1, is not a multiple of 4"),
        (lambda: bank_conflicts(np.arange(12) * 16, 16), r"\(8 or 16 or 24 or 32,\), not \(12,\)"),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(OperandError, match=message):
        make()


def test_dtypes_are_not_cast() -> None:
    with pytest.raises(OperandTypeError, match="elements must have dtype float16, not float32"):
        Tile(8, 8, "f16").store(np.zeros(128, np.uint8), np.zeros((8, 8), np.float32))
    with pytest.raises(OperandTypeError, match="memory must have dtype uint8"):
        Tile(8, 8, "f16").load(np.zeros(128))
