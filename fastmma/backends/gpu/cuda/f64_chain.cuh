// One result of f64: a chain of IEEE fma from c, in the opcode's rounding mode.

INNER bool is_nan(uint64 code) { return (code & 0x7FFFFFFFFFFFFFFFull) > 0x7FF0000000000000ull; }

INNER uint64 chained(uint64 x, uint64 y, uint64 total)
{
    // the first NaN of b, c and a comes through, made quiet
    const uint64 nan = is_nan(y) ? y : is_nan(total) ? total : is_nan(x) ? x : 0;
    const uint64 sum = nan ? nan | 0x0008000000000000ull : bits_of(FMA(double_of(x), double_of(y), double_of(total)));
    return !nan && is_nan(sum) ? 0xFFF8000000000000ull : sum;
}

INNER D_CODE result_of(const Operands& operands, C_CODE c)
{
    uint64 total = c;
    bool present;
    const int64 depth = (operands.a.depth + PERIOD - 1) / PERIOD * PERIOD;  // +0 times +0 can change the sign of a zero
    for (int64 k = 0; k < depth; k++) {
        const uint64 x = code_at(operands.a, operands.row, k, present);
        const uint64 y = code_at(operands.b, operands.column, k, present);
        total = chained(x, y, total);
    }
    return total;
}
