"""Mutants: one wrong number or sign each in a table, a decoder, the reference or a kernel, which the tests must tell from the right one.

``python tools/mutants.py`` puts each into a copy of the package, runs its tests there until one fails, and prints killed or survived;
``python tools/mutants.py 3 17`` does so for some, ``--list`` prints them, and ``--package PATH`` takes another checkout. A mutant that
survives, or whose text is not found exactly once, is an error. Kernels that a mutant changes are compiled anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ("tests/kernels/test_products_of_kernels.py",)
OWN = ("tests/numerics/test_own.py",)
TABLES = ("tests/isa/test_formats.py", "tests/numerics/test_reference.py", "tests/numerics/test_rows.py")


class Mutant(NamedTuple):
    """What is changed in a file of the package, and the tests that are to notice it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...] = KERNELS


MUTANTS = (
    # tables
    Mutant(
        "isa/formats.py",
        '"float8_e4m3fn", 4, 3, 7, specials="nan"),\n    Format("e5m2"',
        '"float8_e4m3fn", 4, 3, 8, specials="nan"),\n    Format("e5m2"',
        TABLES,
    ),
    Mutant("isa/formats.py", '"float6_e3m2fn", 3, 2, 3)', '"float6_e3m2fn", 3, 2, 4)', TABLES),
    Mutant(
        "isa/sparsity.py",
        "tuple(unit * each + i for each in (low, high)",
        "tuple(unit * each + i for each in (high, low)",
        ("tests/operands/test_sparse.py",),
    ),
    Mutant("numerics/rows.py", "VOLTA = FusedStep(23, (NO_FLOOR, -19))", "VOLTA = FusedStep(23, (NO_FLOOR, -18))", TABLES),
    Mutant("numerics/rows.py", "AMPERE = FusedStep(24, (-132, -20))", "AMPERE = FusedStep(25, (-132, -20))", TABLES),
    Mutant(
        "numerics/rows.py",
        "HOPPER_FP8 = FusedStep(13, (-133, -21), keep_bits=13)",
        "HOPPER_FP8 = FusedStep(13, (-133, -21), keep_bits=14)",
        TABLES,
    ),
    # the reference
    Mutant(
        "numerics/reference_steps.py",
        "rest > half or (rest == half and whole & 1)",
        "rest > half or (rest == half and not whole & 1)",
        TABLES,
    ),
    Mutant("numerics/reference_steps.py", "if term.significand or term.cancelled]", "]", TABLES),
    Mutant("numerics/reference_steps.py", "exponent = (field if hidden else 1) - fmt.bias", "exponent = field - fmt.bias", TABLES),
    Mutant("numerics/reference_steps.py", "emax = max(emax, c.exponent)", "emax = min(emax, c.exponent)", OWN),
    Mutant("numerics/reference_steps.py", "0 < abs(value.significand) < 1", "0 < abs(value.significand) <= 1", OWN),
    Mutant(
        "backends/parameters.py",
        'set(ROUNDINGS) and row.c_joins == "terms"',
        'set(ROUNDINGS) and row.c_joins != ""',
        ("tests/backends/test_own_arithmetic.py",),
    ),
    Mutant("numerics/reference_sums.py", "return fma(y, z, x, f32)", "return fma(x, z, y, f32)", ("tests/kernels/test_epilogue.py",)),
    # portable kernels
    Mutant("kernels/fused/step_end.py", "113 if p.half != 0 else 1", "112 if p.half != 0 else 1"),
    Mutant(
        "kernels/fused/step_end.py", "sticky = (size >> 8) | select((size & 0xFF) == 0", "sticky = (size >> 8) | select((size & 0x7F) == 0"
    ),
    Mutant("kernels/fused/step_end.py", "convert(size & ((size >> 24) ^ 0xFFFFFFFF)", "convert(size & ((size >> 25) ^ 0xFFFFFFFF)"),
    Mutant("kernels/fused/portable_block.py", "p.terms << (p.align_bits + 2) <= 1 << 31", "p.terms << (p.align_bits + 2) <= 1 << 33"),
    Mutant(
        "kernels/fused/portable_block.py",
        "select(load(block.work + SIZES + place, np.float32, LANES) == 0.0",
        "select(load(block.work + DOTS + place, np.float32, LANES) == 0.0",
    ),
    Mutant(
        "kernels/matrices/addresses.py", "lowest_lane(minimum(low, shifts))", "lowest_lane(low)", ("tests/kernels/test_portable_scales.py",)
    ),
    Mutant("kernels/matrices/addresses.py", "k // scales.block * scales.stride + line", "k // (scales.block * 2) * scales.stride + line"),
    Mutant("kernels/general/step_end.py", "work.exponents[j] = max(field, 1) - p.bias", "work.exponents[j] = field - p.bias"),
    Mutant(
        "kernels/matrices/accumulators.py",
        "nearest = (magnitude + 0xFFF + ((magnitude >> 13) & 1))",
        "nearest = (magnitude + 0x1000 + ((magnitude >> 13) & 0))",
    ),
    Mutant("kernels/matrices/expand.py", "stored[i, j * per_chunk + element]", "stored[i, j * per_chunk + per_chunk - 1 - element]"),
    # fast kernels
    Mutant("kernels/fused/lanes.py", "HALF_LOWEST = -14", "HALF_LOWEST = -15"),
    Mutant(
        "kernels/fused/lanes.py",
        "origin = builder.or_(origin, emit.constant(kind, 1 << (self.fraction - 1)))",
        "origin = builder.or_(origin, emit.constant(kind, 1 << (self.fraction - 2)))",
    ),
    Mutant(
        "kernels/fused/lanes.py",
        "bits = builder.or_(bits, emit.plus(emit.masked(bits, low), low))",
        "bits = builder.or_(bits, emit.masked(bits, low))",
    ),
    Mutant(
        "kernels/fused/reach.py",
        "return F32_LOWEST + max(p.align_bits - p.keep_bits, 0)",
        "return F32_LOWEST - 30 + max(p.align_bits - p.keep_bits, 0)",
    ),
    Mutant(
        "kernels/fused/reach.py",
        "fits = a.highest - a.lowest + b.highest - b.lowest <= room",
        "fits = a.highest - a.lowest + b.highest - b.lowest <= room + 40",
        ("tests/kernels/test_reach.py",),
    ),
    Mutant("kernels/fused/reach.py", "return -(1 << (23 - min(p.align_bits, 23)))", "return -(1 << (23 - min(p.align_bits - 2, 23)))"),
    Mutant(
        "kernels/decode/emit.py",
        "emit.shifted_left(words, 15 - element.width), 1 << 15",
        "emit.shifted_left(words, 14 - element.width), 1 << 15",
    ),
    Mutant(
        "kernels/decode/tables.py",
        "field = np.maximum(magnitude >> element.mantissa_bits, 1)",
        "field = np.maximum(magnitude >> element.mantissa_bits, 0)",
    ),
    Mutant("kernels/integer/words.py", "words = -(-words // segment) * segment", "words = words // segment * segment"),
    Mutant(
        "kernels/fma/directed.py",
        "total_negative = negative and c_negative if rounding != RM",
        "total_negative = negative and c_negative if rounding != RP",
    ),
    Mutant(
        "kernels/fma/directed.py",
        "return high >> np.uint64(count), (low >> np.uint64(count)) | (high << np.uint64(64 - count)) | sticky",
        "return high >> np.uint64(count), (low >> np.uint64(count)) | (high << np.uint64(64 - count))",
    ),
    Mutant("kernels/fma/m8n8k4.py", "SIGN if pairs else 0", "SIGN if pairs else SIGN"),
    Mutant(
        "kernels/fma/f32.py",
        "np.full((missing, b.shape[1]), -0.0, np.float32)",
        "np.full((missing, b.shape[1]), 0.0, np.float32)",
        ("tests/products/test_scalar_fma.py",),
    ),
    Mutant(
        "kernels/sums/promotion.py",
        "result = fma(scale_a * scale_b, partial, total)",
        "result = fma(partial * scale_a, scale_b, total)",
        ("tests/kernels/test_promotion.py",),
    ),
    Mutant("kernels/sums/epilogue.py", "(bits + 0x7FFF + ((bits >> 16) & 1))", "(bits + 0x8000)", ("tests/kernels/test_epilogue.py",)),
    Mutant(
        "kernels/fused/window_lanes.py",
        "words + convert(ones(signs), np.int16)",
        "words + convert(ones(signs & signs << splat(np.uint8(1), PANEL)), np.int16)",
        ("tests/kernels/test_matrix_tiles.py",),
    ),
    Mutant(
        "kernels/fused/window_lanes.py",
        "cut = fma_down(scale, splat(_CUT, LANES), total)",
        "cut = fma(scale, splat(_CUT, LANES), total)",
        ("tests/kernels/test_matrix_tiles.py",),
    ),
    Mutant(
        "kernels/fused/window_lanes.py",
        "subtract_down(add_down(total, c), _uncounted(words, number))",
        "subtract_down(total + c, _uncounted(words, number))",
        ("tests/kernels/test_matrix_tiles.py",),
    ),
    Mutant("kernels/fused/exact_lanes.py", "if not was_inexact():", "if True:", ("tests/kernels/test_matrix_tiles.py",)),
    Mutant("kernels/fused/exact_lanes.py", ".min() >= how.least", ".min() >= -1000", ("tests/kernels/test_matrix_cores.py",)),
    Mutant(
        "kernels/scaled/group_panels.py",
        "if k < columns and alive[scale_codes[row, k // block]] != 0:",
        "if k < columns and alive[scale_codes[row, k // block]] != -1:",
    ),
    # numbers of other kinds, plans and decisions
    Mutant(
        "kernels/quantize.py",
        "steps = word(word(significand + word(word(half + odd) & rounds)) >> shift)",
        "steps = word(word(significand + word(word(half + word(1)) & rounds)) >> shift)",
        ("tests/scaling/test_quantize.py",),
    ),
    Mutant(
        "kernels/functions/sums.py",
        "kept[thread] += part[thread * size + element]",
        "kept[thread] += part[thread * size + size - 1 - element]",
        ("tests/functions/test_torch_orders.py",),
    ),
    Mutant("kernels/functions/philox.py", "_ROUNDS = 10", "_ROUNDS = 7", ("tests/functions/test_philox.py",)),
    Mutant(
        "kernels/functions/attention.py",
        "np.float32(np.float32(old * scale) - np.float32(new * scale))",
        "np.float32(np.float32(old - new) * scale)",
        ("tests/functions/test_attention.py", "tests/functions/test_cudnn_attention.py"),
    ),
    Mutant(
        "products/order.py",
        "run, longer = divmod(streamed * deep, self.ctas)",
        "run, longer = -(-streamed * deep // self.ctas), 0",
        ("tests/products/test_order.py",),
    ),
    Mutant(
        "products/cublas/tile_order.py",
        "max(-(-(product.k // choice.parts) // unit) * unit, unit)",
        "max(product.k // choice.parts // unit * unit, unit)",
        ("tests/products/test_cublas_plans.py",),
    ),
    Mutant(
        "products/cublas/tile_order.py",
        "-(-(product.k // choice.parts) // unit)",
        "-(product.k // -choice.parts // unit)",
        ("tests/products/test_cublas_plans.py",),
    ),
    Mutant(
        "agreement/simplify.py",
        "if taken is not None and rule.is_exact and after.most is not None",
        "if taken is not None and after.most is not None",
        ("tests/agreement/test_same_bits.py",),
    ),
)


def copied(package: Path, mutant: Mutant | None, folder: Path) -> None:
    """Copy a checkout into a folder, and put the mutant there."""
    for name in ("fastmma", "tests", "bench", "tools", "docs", "examples", "README.md", "pyproject.toml"):
        source = package / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    if mutant is None:
        return
    file = folder / "fastmma" / mutant.file
    text = file.read_text()
    found = text.count(mutant.old)
    if found != 1:
        raise SystemExit(f"{mutant.file}: {mutant.old!r} is there {found} times: write the mutant anew")
    file.write_text(text.replace(mutant.old, mutant.new))


def failing(package: Path, mutant: Mutant | None, tests: tuple[str, ...]) -> str:
    """Name the first test that fails with the mutant; empty if none does."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        copied(package, mutant, folder)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", *tests]
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode != 1 or not failed:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return failed[0][:150]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("numbers", nargs="*", type=int, help="some mutants; else all")
    parser.add_argument("--list", action="store_true", help="print them")
    parser.add_argument("--package", type=Path, default=ROOT, help="another checkout, whose package and tests are taken")
    parser.add_argument("--tests", nargs="*", help="other tests than those of the mutants")
    given = parser.parse_args()
    survived, passing = 0, set[tuple[str, ...]]()
    for number in given.numbers or range(len(MUTANTS)):
        mutant = MUTANTS[number]
        if given.list:
            print(number, mutant.file, mutant.old, "->", mutant.new)
            continue
        tests = tuple(given.tests or mutant.tests)
        if tests not in passing and failing(given.package, None, tests):
            raise SystemExit(f"{' '.join(tests)} fail without a mutant")
        passing.add(tests)
        test = failing(given.package, mutant, tests)
        survived += not test
        print(f"{number:>3} {'killed' if test else 'SURVIVED'} {mutant.file}: {mutant.new}  {test}", flush=True)
    print(f"{survived} survived")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
