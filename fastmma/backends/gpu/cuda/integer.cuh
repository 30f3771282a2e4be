// One exact result of integers or bits: it wraps, or is clamped at the end of each instruction.

INNER int64 product(int x, int y) { return BIT_XOR ? (x ^ y) & 1 : (int64)x * y; }

INNER D_CODE result_of(const Operands& operands, C_CODE c)
{
    int64 total = (int)c;
    bool present;
    for (int64 start = 0; start < operands.a.depth; start += PERIOD) {
        for (int64 k = start; k < start + PERIOD; k++) {
            const int x = entry_at(operands.a, operands.row, k, present).significand;
            total += product(x, entry_at(operands.b, operands.column, k, present).significand);
        }
        total = SATFINITE ? larger(smaller(total, (int64)2147483647), (int64)-2147483648LL) : (int64)(int)total;
    }
    return (D_CODE)(uint32)total;
}
