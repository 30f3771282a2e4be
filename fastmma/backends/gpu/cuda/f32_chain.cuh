// One result of the lowered m8n8k4: chains of IEEE f32 fma over four k, then additions of c.

INNER float value_of(const Entry& entry)
{
    const double value = from_words(entry.value_high, 0);
    // the table has tiny numbers for zeros
    return entry.special || entry.significand ? narrowed(value) : entry.value_high < 0 ? -0.0f : 0.0f;
}

INNER float chain(const Operands& operands, int64 start, int count, float total)
{
    bool present;
    for (int64 k = start; k < start + count; k++) {
        const float x = value_of(entry_at(operands.a, operands.row, k, present));
        const float y = value_of(entry_at(operands.b, operands.column, k, present));
        total = fma_nearest(x, y, total);
    }
    return total;
}

INNER D_CODE result_of(const Operands& operands, C_CODE c)
{
    uint32 code = converted(c, C_HALF, D_HALF);
    for (int64 k = 0; k < operands.a.depth; k += PERIOD) {
        float total = float_of(converted(k == 0 ? (uint32)c : code, k == 0 ? C_HALF : D_HALF, false));
        if (PAIRS) {
            for (int half = 0; half < PERIOD; half += 2)
                total = add_nearest(total, chain(operands, k + half, 2, -0.0f));  // the first product is a plain multiplication
        } else {
            total = add_nearest(chain(operands, k, PERIOD, 0.0f), total);
        }
        const uint32 bits = bits_of(total);
        code = converted((bits & 0x7FFFFFFFu) > infinity(false) ? canonical_nan(false) : bits, false, D_HALF);
    }
    return (D_CODE)code;
}
