// A whole product: a block of threads computes LINES by LINES results, a thread SIDE by SIDE of them.

#define TILE 16  // threads along each side of a block, of which a warp has 8 by 4
#define SIDE (LINES / TILE)  // 4, a vector of words
#define PANEL_WORDS (STAGE_WORDS * LINES)
#define EACH_RESULT UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++)

typedef double Sums[SIDE][SIDE];

INNER int row_of(int thread) { return thread / 32 / (TILE / 4) * 8 + thread % 32 / 4; }
INNER int column_of(int thread) { return thread / 32 % (TILE / 4) * 4 + thread % 4; }

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

// Sums that are complete to the result's format; all together, so that what is unusual takes one branch.
INNER void end(Sums& sums)
{
    bool usual = true;
    // to groups a zero is unusual, so that nothing branches
    EACH_RESULT usual = GROUP == 1 ? usual && only_clears_bits(sums[i][j]) : usual & is_normal(sums[i][j]);
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
// What the sum of a step starts with: its accumulator, and the units that `negatives` terms are going to lose. `shift` is the exponent
// of the scales, which terms are without. An infinite or NaN accumulator stays what it is; its emax only has to give a finite start.
INNER double begun(double accumulator, int emax, int shift, int negatives)
{
    const int field = 1023 + 52 - ALIGN_BITS - shift + smaller(emax, HIGHEST_EXPONENT);
    const double start = from_words(field << 20 | 0x80000, negatives + (high_word(accumulator) < 0));
    const double scaled = SCALE_BLOCK ? multiply_nearest(accumulator, power_of_two(-shift)) : accumulator;
    return fma_toward_zero(scaled, A_LITTLE_MORE, start);
}

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
    EACH_RESULT {
        // finite also where the sum is not
        const uint32 start = smaller((uint32)high_word(sums[i][j]) & 0x7FF00000u, 0x7FE00000u) | 0x80000u;
        const double total = add_nearest(sums[i][j], -from_words((int)start, 0));
        sums[i][j] = SCALE_BLOCK ? multiply_nearest(total, power_of_two((int)(x_scale[i] + y_scale[j]))) : total;
    }
    end(sums);
}
#else
// The dot products of a group of elements, of four rows and four columns, each as a word plus 2**31.
INNER void dots_of_group(const uint32* a, const uint32* b, int row, int column, uint32 (&dots)[SIDE][SIDE])
{
    EACH_RESULT dots[i][j] = 0x80000000u;
    uint32 x[SIDE], y[SIDE];
#if HAS_BYTE_MATRICES
    // a matrix has the rows of eight threads, two of each, and two columns of each of four threads; its operands are words of 16 of k
    const int word = column % 4, line = column / 4 * 16 + row % 8 / 2 * 4 + row % 2;
    UNROLL for (int part = 0; part < GROUP / 16; part++) {
        load(a + (4 * part + word) * LINES, row, x);
        UNROLL for (int q = 0; q < 2; q++) y[q] = b[(4 * part + word) * LINES + line + 2 * q];
        UNROLL for (int p = 0; p < 2; p++)
            UNROLL for (int q = 0; q < 2; q++) {
                uint32(&upper)[SIDE] = dots[2 * p], (&lower)[SIDE] = dots[2 * p + 1];
                add_byte_matrices(x[2 * p], x[2 * p + 1], y[q], upper[2 * q], upper[2 * q + 1], lower[2 * q], lower[2 * q + 1]);
            }
    }
#else
    UNROLL for (int word = 0; word < GROUP / 4; word++) {
        load(a + word * LINES, row, x);
        load(b + word * LINES, column, y);
        EACH_RESULT dots[i][j] = (uint32)dot_of_bytes(x[i], y[j], (int)dots[i][j]);
    }
#endif
}

// Exponents stand where a double has its own. The sum starts with a unit more for each term, one for the accumulator too, and `kept` are
// those that these do not lose. A start that an infinite or NaN accumulator has is some finite number.
INNER void advance(Sums& sums, const uint32* a, const uint32* b, int row, int column, int step)
{
    const int terms = STEP / GROUP, lowest = larger(EMAX_FLOOR, -126);
    int emax[SIDE][SIDE];
    uint32 x[SIDE], y[SIDE], kept[SIDE][SIDE] = {};
    EACH_RESULT {
        const int field = high_word(sums[i][j]) & 0x7FF00000;
        emax[i][j] = add_max(field, -1023 * (1 << 20), (field ? lowest : EMAX_FLOOR) * (1 << 20));
    }
    UNROLL for (int term = step * terms; term < (step + 1) * terms; term++) {
        uint32 x_mask[SIDE], y_mask[SIDE];
        load(a + (SCALE_EXPONENTS + term) * LINES, row, x);
        load(b + (SCALE_EXPONENTS + term) * LINES, column, y);
        load(a + (MASKS + term) * LINES, row, x_mask);
        load(b + (MASKS + term) * LINES, column, y_mask);
        // a group whose products cancel counts as well, one without products does not
        EACH_RESULT if (x_mask[i] & y_mask[j]) emax[i][j] = add_max((int)x[i], (int)y[j], emax[i][j]);
    }
    int(&start)[SIDE][SIDE] = emax;
    EACH_RESULT {
        start[i][j] = (int)((uint32)emax[i][j] + ((1023 + 52 - ALIGN_BITS) * (1u << 20) + 0x80000u));
        const int units = terms + (int)((uint32)high_word(sums[i][j]) >> 31);
        sums[i][j] = fma_toward_zero(sums[i][j], A_LITTLE_MORE, from_words(start[i][j], units));
    }
    UNROLL for (int term = step * terms; term < (step + 1) * terms; term++) {
        uint32 dots[SIDE][SIDE];
        dots_of_group(a + term * (GROUP / 4) * LINES, b + term * (GROUP / 4) * LINES, row, column, dots);
        load(a + (SCALES + term) * LINES, row, x);
        load(b + (SCALES + term) * LINES, column, y);
        EACH_RESULT {
            const double scale = multiply_nearest(from_words((int)x[i], 0), from_words((int)y[j], LITTLE));
            // 2**52 + 2**31 and an integer, as bits
            const double dot = add_nearest(from_words(0x43300000, (int)dots[i][j]), -4503601774854144.0);
            sums[i][j] = fma_toward_zero(dot, scale, sums[i][j]);
            kept[i][j] += dots[i][j] >> 31;
        }
    }
    EACH_RESULT sums[i][j] = add_nearest(sums[i][j], -from_words(start[i][j], (int)kept[i][j]));
    end(sums);
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
            const int64 row = first_row + SIDE * row_of(thread) + i, column = first_column + SIDE * column_of(thread) + j;
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
        EACH_THREAD advance_stage(OWN(states), words, words + PANEL_WORDS, row_of(thread), column_of(thread));
        BARRIER;
    }
    EACH_THREAD {
        EACH_RESULT {
            const int64 row = first_row + SIDE * row_of(thread) + i, column = first_column + SIDE * column_of(thread) + j;
            if (row < rows && column < columns)
                d[row * columns + column] = (D_CODE)code_of(OWN(states).sums[i][j]);
        }
    }
}
