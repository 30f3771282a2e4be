// Sums of steps as doubles.
//
// The sum of a step is a double that starts at 1.5 * 2**52 units, the unit being that of the last bit that alignment leaves. Added under
// rounding toward zero to this positive number, a term is rounded down. B is a little larger than it is, so that every negative term
// loses exactly one unit by that, whether it is a whole number of units or not; these units are counted beforehand.

#define HIGHEST_EXPONENT 300  // no finite term has a higher one: two scales of 2**127, two elements of 2**15
#define LITTLE 0x10  // the low word of B's doubles: a part in 2**48
#define A_LITTLE_MORE (1.0 + 1.0 / (1ull << 40))

INNER bool is_special(double value) { return (high_word(value) & 0x7FF00000) == 0x7FF00000; }
INNER double power_of_two(int exponent) { return from_words((1023 + exponent) << 20, 0); }
INNER double with_sign_of(double magnitude, double value)
{
    return from_words(high_word(magnitude) | (high_word(value) & (int)0x80000000), low_word(magnitude));
}
INNER double without_sign(double value) { return from_words(high_word(value) & 0x7FFFFFFF, low_word(value)); }

INNER int exponent_of(double sum)
{
    const int field = high_word(sum) >> 20 & 0x7FF;
    return field == 0 ? NO_EXPONENT : larger(field - 1023, HALF ? -14 : -126);
}

INNER double infinity_like(double value) { return with_sign_of(double_of(0x7FF0000000000000ull), value); }

INNER double nearest_half(double sum)
{
    const int field = high_word(sum) >> 20 & 0x7FF;
    const double large = from_words((larger(field, 1023 - 14) + 42) << 20 | 0x80000, 0);
    const double nearest = add_nearest(add_nearest(sum, large), -large);
    return without_sign(nearest) < 65536.0 ? nearest : is_special(sum) ? sum : infinity_like(sum);
}

// Whether a sum is in the range of normal f32.
INNER bool is_normal(double sum) { return ((uint32)high_word(sum) << 1) - (897u << 21) < 254u << 21; }
// Whether a sum is +0 or in that range, where rounding toward zero only clears bits.
INNER bool only_clears_bits(double sum) { return (uint32)high_word(sum) << 1 == 0 || is_normal(sum); }

INNER double with_bits_cleared(double sum)
{
    const uint64 mask = ~(uint64)0 << (52 - KEEP_BITS);
    return from_words(high_word(sum) & (int)(mask >> 32), low_word(sum) & (int)mask);
}

// Any sum toward zero to f32 with KEEP_BITS of fraction; a zero is +0.
INNER double toward_zero(double sum)
{
    if (only_clears_bits(sum) || is_special(sum))
        return is_special(sum) ? sum : with_bits_cleared(sum);
    if ((high_word(sum) >> 20 & 0x7FF) > 1023 + 127)
        return infinity_like(sum);
    const double large = power_of_two(52 - 126 - KEEP_BITS);
    const double magnitude = add_nearest(add_toward_zero(without_sign(sum), large), -large);
    return magnitude == 0.0 ? 0.0 : with_sign_of(magnitude, sum);
}

INNER double sum_of(uint32 code)
{
    const double value = widened(float_of(converted(code, HALF, false)));
    return value == 0.0 ? 0.0 : value;
}

INNER uint32 code_of(double sum)
{
    const bool nan = is_special(sum) && (bits_of(sum) << 12) != 0;
    return nan ? canonical_nan(HALF) : converted(bits_of(narrowed(sum)), false, HALF);
}

