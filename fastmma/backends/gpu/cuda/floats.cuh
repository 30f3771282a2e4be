// Codes of f32 and f16 as exact integers, and back.

struct Term {
    int64 significand;
    int exponent;  // by which it is aligned
    int last;      // of its last bit
    int special;
    bool negative;
};

INNER int fraction_bits(bool half) { return half ? 10 : 23; }
INNER int lowest_exponent(bool half) { return half ? -14 : -126; }
INNER uint32 infinity(bool half) { return half ? 0x7C00u : 0x7F800000u; }
INNER uint32 canonical_nan(bool half) { return half ? 0x7FFFu : 0x7FFFFFFFu; }
INNER uint32 sign_bit(bool half) { return half ? 0x8000u : 0x80000000u; }

INNER Term decoded(uint32 code, bool half)
{
    const int bits = fraction_bits(half);
    const uint32 magnitude = code & ~sign_bit(half), mantissa = magnitude & ((1u << bits) - 1);
    const int field = (int)(magnitude >> bits);
    Term term;
    term.negative = (code & sign_bit(half)) != 0;
    term.special = magnitude > infinity(half) ? NOT_A_NUMBER : magnitude == infinity(half) ? INFINITE : FINITE;
    term.significand = field ? (int64)(mantissa | 1u << bits) : (int64)mantissa;
    if (term.negative)
        term.significand = -term.significand;
    term.exponent = larger(field, 1) - 1 + lowest_exponent(half);
    term.last = term.exponent - bits;
    return term;
}

// The code of total * 2**last, to nearest even or toward zero (overflow is infinite all the same); a zero is +0.
INNER uint32 rounded(int64 total, int last, bool half, bool nearest, int keep)
{
    if (total == 0)
        return 0;
    const int bits = fraction_bits(half);
    const uint64 magnitude = (uint64)(total < 0 ? -total : total);
    int exponent = larger(63 - leading_zeros(magnitude) + last, lowest_exponent(half));
    const int shift = exponent - bits - last;
    uint64 whole = shift > 63 ? 0 : shift > 0 ? magnitude >> shift : magnitude << -shift;
    if (nearest && shift > 0 && shift < 64) {
        const uint64 rest = magnitude - (whole << shift), tie = (uint64)1 << (shift - 1);
        whole += rest > tie || (rest == tie && (whole & 1));
    }
    if (whole >> (bits + 1)) {
        whole >>= 1;
        exponent++;
    }
    const uint32 sign = total < 0 ? sign_bit(half) : 0;
    if (exponent > 1 - lowest_exponent(half))
        return sign | infinity(half);
    whole &= ~(uint64)0 << (bits - keep);
    if (whole == 0)
        return 0;
    const uint32 field = whole >> bits ? (uint32)(exponent - lowest_exponent(half) + 1) : 0;
    return sign | field << bits | ((uint32)whole & ((1u << bits) - 1));
}

// The sum of infinite and NaN terms: bit 0 of `seen` is +infinity, bit 1 -infinity, bit 2 NaN.
INNER int seen_as(const Term& term) { return term.special == FINITE ? 0 : term.special == NOT_A_NUMBER ? 4 : term.negative ? 2 : 1; }
INNER uint32 special_sum(int seen, bool half)
{
    return seen > 2 ? canonical_nan(half) : infinity(half) | (seen == 2 ? sign_bit(half) : 0);
}

// Another format's code of the same number, to nearest even.
INNER uint32 converted(uint32 code, bool from_half, bool to_half)
{
    if (from_half == to_half)
        return code;
    const Term term = decoded(code, from_half);
    if (term.special)
        return special_sum(seen_as(term), to_half);
    const uint32 result = rounded(term.significand, term.last, to_half, true, fraction_bits(to_half));
    return result == 0 && term.negative ? sign_bit(to_half) : result;
}

INNER uint32 ieee_sum(uint32 x, uint32 y, bool half)
{
    const Term first = decoded(x, half), second = decoded(y, half);
    if (first.special || second.special)
        return special_sum(seen_as(first) | seen_as(second), half);
    if (!half)
        return bits_of(add_nearest(float_of(x), float_of(y)));
    // every f16 is a multiple of 2**-24
    const int64 total = first.significand * ((int64)1 << (first.last + 24)) + second.significand * ((int64)1 << (second.last + 24));
    return total == 0 && first.negative && second.negative ? sign_bit(true) : rounded(total, -24, true, true, 10);
}
