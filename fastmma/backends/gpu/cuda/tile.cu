// A whole product: a block of threads computes LINES by LINES results, a thread SIDE by SIDE of them.
//
// The sum of a step is a double that starts at 1.5 * 2**52 units, the unit being that of the last bit that alignment leaves. Added under
// rounding toward zero to this positive number, a term is rounded down. B is a little larger than it is, so that every negative term
// loses exactly one unit by that, whether it is a whole number of units or not; these units are counted beforehand.

#define TILE 16  // threads along each side of a block
#define HIGHEST_EXPONENT 300  // no finite term has a higher one: two scales of 2**127, two elements of 2**15
#define LITTLE 0x10  // the low word of B's doubles: a part in 2**48
#define SIDE (LINES / TILE)  // 4, a vector of words
#define PANEL_WORDS (STAGE_WORDS * LINES)
#define EACH_RESULT UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++)

typedef double Sums[SIDE][SIDE];

struct State {
    Sums sums;  // the accumulators; during a step the sums that are under way
#if SPLIT
    Sums addends;
#endif
};

INNER void load(const uint32* words, int place, uint32 (&values)[SIDE])
{
    const uint4 four = *(const uint4*)(words + SIDE * place);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
}

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

// Whether a sum is +0 or in the range of normal f32, where rounding toward zero only clears bits.
INNER bool only_clears_bits(double sum)
{
    const uint32 magnitude = (uint32)high_word(sum) << 1;
    return magnitude == 0 || magnitude - (897u << 21) < 254u << 21;
}

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

// What the sum of a step starts with: its accumulator, and the units that `negatives` terms are going to lose. `shift` is the exponent
// of the scales, which terms are without. An infinite or NaN accumulator stays what it is; its emax only has to give a finite start.
INNER double begun(double accumulator, int emax, int shift, int negatives)
{
    const int field = 1023 + 52 - ALIGN_BITS - shift + smaller(emax, HIGHEST_EXPONENT);
    const double start = from_words(field << 20 | 0x80000, negatives + (high_word(accumulator) < 0));
    const double scaled = SCALE_BLOCK && GROUP == 1 ? multiply_nearest(accumulator, power_of_two(-shift)) : accumulator;
    return fma_toward_zero(scaled, 1.0 + 1.0 / (1ull << 40), start);
}

// Sums that are complete to the result's format; all together, so that what is unusual takes one branch.
INNER void end(Sums& sums, const uint32 (&x_scale)[SIDE], const uint32 (&y_scale)[SIDE])
{
    bool usual = true;
    EACH_RESULT {
        // finite also where the sum is not
        const uint32 start = smaller((uint32)high_word(sums[i][j]) & 0x7FF00000u, 0x7FE00000u) | 0x80000u;
        const double total = add_nearest(sums[i][j], -from_words((int)start, 0));
        sums[i][j] = SCALE_BLOCK && GROUP == 1 ? multiply_nearest(total, power_of_two((int)(x_scale[i] + y_scale[j]))) : total;
        usual = usual && only_clears_bits(sums[i][j]);
    }
    if (HALF)
        EACH_RESULT sums[i][j] = nearest_half(sums[i][j]);
    else if (usual)
        EACH_RESULT sums[i][j] = with_bits_cleared(sums[i][j]);
    else
        EACH_RESULT sums[i][j] = toward_zero(sums[i][j]);
}

#if SPLIT
INNER double ieee_sum_of(double x, double y)
{
    const double total = add_nearest(x, y);
    return HALF ? nearest_half(total) : widened(narrowed(total));
}
#endif

#if GROUP == 1
INNER void advance(Sums& sums, const uint32* a, const uint32* b, int row, int column, int step)
{
    uint32 highest[SIDE][SIDE], x[SIDE], y[SIDE];
    uint32 x_scale[SIDE] = {}, y_scale[SIDE] = {};
    const uint32 none = (uint32)(uint16)(2 * NO_EXPONENT) * 0x10001u;
    EACH_RESULT highest[i][j] = none;
    UNROLL_BY_8 for (int pair = step * STEP / 2; pair < (step + 1) * STEP / 2; pair++) {
        load(a + (EXPONENTS + pair) * LINES, row, x);
        load(b + (EXPONENTS + pair) * LINES, column, y);
        EACH_RESULT highest[i][j] = add_max_pair(x[i], y[j], highest[i][j]);
    }
    if (SCALE_BLOCK) {
        load(a + (SCALES + step) * LINES, row, x_scale);
        load(b + (SCALES + step) * LINES, column, y_scale);
    }
    int negatives[SIDE][SIDE] = {};
    UNROLL for (int word = step * STEP / 32; word < (step * STEP + STEP + 31) / 32; word++) {
        const uint32 mask = STEP < 32 ? ((1u << STEP % 32) - 1) << step * STEP % 32 : ~0u;
        load(a + (SIGNS + word) * LINES, row, x);
        load(b + (SIGNS + word) * LINES, column, y);
        EACH_RESULT negatives[i][j] += ones((x[i] ^ y[j]) & mask);
    }
    EACH_RESULT {
        const int shift = (int)(x_scale[i] + y_scale[j]);
        const int products = larger((int)(short)highest[i][j], (int)highest[i][j] >> 16) + shift;
        const int emax = larger(larger(products, exponent_of(sums[i][j])), EMAX_FLOOR);
        sums[i][j] = begun(sums[i][j], emax, shift, negatives[i][j]);
    }
    UNROLL_BY_8 for (int k = step * STEP; k < (step + 1) * STEP; k++) {
        load(a + k * LINES, row, x);
        load(b + k * LINES, column, y);
        EACH_RESULT sums[i][j] = fma_toward_zero(from_words((int)x[i], 0), from_words((int)y[j], LITTLE), sums[i][j]);
    }
    end(sums, x_scale, y_scale);
}
#else
INNER void advance(Sums& sums, const uint32* a, const uint32* b, int row, int column, int step)
{
    const int terms = STEP / GROUP, words = GROUP / 4;
    int dots[STEP / GROUP][SIDE][SIDE] = {};
    uint32 x[SIDE], y[SIDE];
    UNROLL for (int term = 0; term < terms; term++)
        UNROLL for (int word = 0; word < words; word++) {
            load(a + ((step * terms + term) * words + word) * LINES, row, x);
            load(b + ((step * terms + term) * words + word) * LINES, column, y);
            EACH_RESULT dots[term][i][j] = dot_of_bytes(x[i], y[j], dots[term][i][j]);
        }
    int emax[SIDE][SIDE], negatives[SIDE][SIDE] = {};
    EACH_RESULT emax[i][j] = larger(exponent_of(sums[i][j]), EMAX_FLOOR);
    UNROLL for (int term = 0; term < terms; term++) {
        load(a + (SCALE_EXPONENTS + step * terms + term) * LINES, row, x);
        load(b + (SCALE_EXPONENTS + step * terms + term) * LINES, column, y);
        uint32 x_mask[SIDE], y_mask[SIDE];
        if (GROUP > 16) {
            load(a + (MASKS + step * terms + term) * LINES, row, x_mask);
            load(b + (MASKS + step * terms + term) * LINES, column, y_mask);
        } else {
            EACH_RESULT {
                x_mask[i] = x[i] & 0xFFFF;
                y_mask[j] = y[j];
            }
        }
        EACH_RESULT {
            // a group whose products cancel counts as well, one without products does not
            const int exponent = ((int)x[i] >> 16) + ((int)y[j] >> 16);
            emax[i][j] = larger(emax[i][j], x_mask[i] & y_mask[j] ? exponent : NO_EXPONENT);
            negatives[i][j] += (int)((uint32)dots[term][i][j] >> 31);
        }
    }
    EACH_RESULT sums[i][j] = begun(sums[i][j], emax[i][j], 0, negatives[i][j]);
    UNROLL for (int term = 0; term < terms; term++) {
        load(a + (SCALES + step * terms + term) * LINES, row, x);
        load(b + (SCALES + step * terms + term) * LINES, column, y);
        EACH_RESULT {
            const double scale = multiply_nearest(from_words((int)x[i], 0), from_words((int)y[j], LITTLE));
            // 2**52 + 2**31 and an integer, as bits
            const double biased = from_words(0x43300000, dots[term][i][j] ^ (int)0x80000000);
            sums[i][j] = fma_toward_zero(add_nearest(biased, -4503601774854144.0), scale, sums[i][j]);
        }
    }
    end(sums, x, y);
}
#endif

// All steps of a stage; where the form is lowered, each period starts at zero and ends in an addition.
INNER void advance_stage(State& state, const uint32* a, const uint32* b, int row, int column)
{
    for (int step = 0; step < DEPTH / STEP; step++) {
#if SPLIT
        if (step % (PERIOD / STEP) == 0)
            EACH_RESULT {
                state.addends[i][j] = state.sums[i][j];
                state.sums[i][j] = 0.0;
            }
#endif
        advance(state.sums, a, b, row, column, step);
#if SPLIT
        if ((step + 1) % (PERIOD / STEP) == 0)
            EACH_RESULT state.sums[i][j] = ieee_sum_of(state.sums[i][j], state.addends[i][j]);
#endif
    }
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

KERNEL(THREADS, BLOCKS_PER_PROCESSOR) multiply(
    const uint32* a, const uint32* b, const C_CODE* c, D_CODE* d, int64 a_products, int64 b_products, int64 rows, int64 columns, int64 stages)
{
    SHARED_WORDS(words, 2 * PANEL_WORDS);
    State states[STATES];
    const int64 row_panels = (rows + LINES - 1) / LINES, column_panels = (columns + LINES - 1) / LINES;
    const int64 product = BLOCK / (row_panels * column_panels), row_panel = BLOCK / column_panels % row_panels, column_panel = BLOCK % column_panels;
    const int64 first_row = row_panel * LINES, first_column = column_panel * LINES;
    a += (product % a_products * row_panels + row_panel) * stages * PANEL_WORDS;
    b += (product % b_products * column_panels + column_panel) * stages * PANEL_WORDS;
    if (c)
        c += product * rows * columns;
    d += product * rows * columns;
    EACH_THREAD {
        EACH_RESULT {
            const int64 row = first_row + SIDE * (thread / TILE) + i, column = first_column + SIDE * (thread % TILE) + j;
            const bool given = c && row < rows && column < columns;
            OWN(states).sums[i][j] = given ? sum_of(c[row * columns + column]) : 0.0;
        }
    }
    for (int64 stage = 0; stage < stages; stage++) {
        EACH_THREAD {
            for (int word = 4 * thread; word < PANEL_WORDS; word += 4 * THREADS) {
                *(uint4*)(words + word) = *(const uint4*)(a + stage * PANEL_WORDS + word);
                *(uint4*)(words + PANEL_WORDS + word) = *(const uint4*)(b + stage * PANEL_WORDS + word);
            }
        }
        BARRIER;
        EACH_THREAD advance_stage(OWN(states), words, words + PANEL_WORDS, thread / TILE, thread % TILE);
        BARRIER;
    }
    EACH_THREAD {
        EACH_RESULT {
            const int64 row = first_row + SIDE * (thread / TILE) + i, column = first_column + SIDE * (thread % TILE) + j;
            if (row < rows && column < columns)
                d[row * columns + column] = (D_CODE)code_of(OWN(states).sums[i][j]);
        }
    }
}
