// One result of a fused arithmetic, step by step in integers.

INNER Term product(const Term& x, const Term& y)
{
    Term result;
    result.negative = x.negative != y.negative;
    result.significand = x.significand * y.significand;
    result.exponent = x.exponent + y.exponent;
    result.last = x.last + y.last;
    const bool zero = (!x.special && x.significand == 0) || (!y.special && y.significand == 0);
    const bool nan = x.special == NOT_A_NUMBER || y.special == NOT_A_NUMBER;
    result.special = !x.special && !y.special ? FINITE : nan || zero ? NOT_A_NUMBER : INFINITE;
    return result;
}

INNER Term term_of(const Entry& entry, int fraction)
{
    const Term term = {entry.significand, entry.exponent, entry.exponent - fraction, entry.special, entry.value_high < 0};
    return term;
}

// The term at a k: a product, or a sum of products; zero where there is none.
INNER Term term_at(const Operands& operands, int64 start)
{
    Term term = {0, NO_EXPONENT, 0, FINITE, false};
    if (start >= operands.a.depth)
        return term;
#if GROUP == 1
    bool present;
    const Entry x = entry_at(operands.a, operands.row, start, present);
    if (!present)
        return term;
    const Entry y = entry_at(operands.b, operands.column, start, present);
    term = product(term_of(x, A_FRACTION), term_of(y, B_FRACTION));
#else
    bool present;
    // the sum has the exponent of its scales, also where products cancel; without a product it has none
    for (int64 k = start; k < start + GROUP; k++) {
        const Entry x = entry_at(operands.a, operands.row, k, present);
        const Entry y = entry_at(operands.b, operands.column, k, present);
        if (x.significand != 0 && y.significand != 0) {
            term.significand += (int64)(x.significand * y.significand) << (x.exponent + y.exponent);
            term.exponent = 0;
        }
    }
    term.last = -(A_FRACTION + B_FRACTION);
#endif
#if SCALE_BLOCK
    term = product(term, term_of(scale_at(operands.a, operands.row, start), SCALE_FRACTION));
    term = product(term, term_of(scale_at(operands.b, operands.column, start), SCALE_FRACTION));
#endif
    return term;
}

INNER int64 truncated(const Term& term, int last)
{
    const int shift = term.last - last;
    const uint64 magnitude = (uint64)(term.significand < 0 ? -term.significand : term.significand);
    const int64 whole = (int64)(magnitude == 0 || shift < -63 ? 0 : shift < 0 ? magnitude >> -shift : magnitude << shift);
    return term.significand < 0 ? -whole : whole;
}

// The accumulator after the step whose first position is at `start` in its period at `base`.
INNER uint32 fused_step(const Operands& operands, int64 base, int start, uint32 accumulator)
{
    const Term c = decoded(accumulator, HALF);
    int seen = seen_as(c), emax = EMAX_FLOOR;
    if (c.significand != 0)
        emax = larger(emax, c.exponent);
    for (int position = start; position < start + STEP; position += GROUP) {
        const Term term = term_at(operands, base + place_of(position));
        seen |= seen_as(term);
        if (!term.special)  // zeros have exponents below every floor
            emax = larger(emax, term.exponent);
    }
    if (seen)
        return special_sum(seen, HALF);
    const int last = emax - ALIGN_BITS;
    int64 total = truncated(c, last);
    for (int position = start; position < start + STEP; position += GROUP)
        total += truncated(term_at(operands, base + place_of(position)), last);
    return rounded(total, last, HALF, HALF, KEEP_BITS);
}

INNER D_CODE result_of(const Operands& operands, C_CODE c)
{
    uint32 accumulator = converted(c, C_HALF, HALF);
    for (int64 base = 0; base < operands.a.depth; base += PERIOD) {
        const uint32 addend = accumulator;
        if (SPLIT)
            accumulator = 0;
        for (int start = 0; start < PERIOD; start += STEP)
            accumulator = fused_step(operands, base, start, accumulator);
        if (SPLIT)
            accumulator = ieee_sum(accumulator, addend, HALF);
    }
    return (D_CODE)converted(accumulator, HALF, D_HALF);
}
