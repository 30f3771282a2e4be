// Whole products of fused steps by matrix instructions whose results are exact here: a block of threads computes LINES by LINES results,
// a warp ROW_TILES by COLUMN_TILES tiles of m16n8.
//
// The sum of a step is a double as in sums.cuh. Its terms are added by a chain of fma toward zero, an instruction for eight k. Another counts
// the negative ones: each element is two bytes, its sign and the opposite. A third finds the largest exponent: each element is a power of two,
// its exponent times EXPONENT_BITS, so that no sum of a step's terms reaches the next exponent.

#define TERM_UNITS (STEP % 16 ? 1 : 2)  // of one for terms
#define WARPS_IN_ROW (LINES / (8 * COLUMN_TILES))
#define EACH_ROW_TILE UNROLL for (int i = 0; i < ROW_TILES; i++)
#define EACH_COLUMN_TILE UNROLL for (int j = 0; j < COLUMN_TILES; j++)
#define EACH_TILE EACH_ROW_TILE EACH_COLUMN_TILE
#define EACH_SUM EACH_TILE UNROLL for (int s = 0; s < 4; s++)
#define PANEL_WORDS (STAGE_WORDS * LINES)
#define ROW(i, s) (thread / 32 / WARPS_IN_ROW * 16 * ROW_TILES + 16 * (i) + (s) / 2 * 8 + thread % 32 / 4)
#define COLUMN(j, s) (thread / 32 % WARPS_IN_ROW * 8 * COLUMN_TILES + 8 * (j) + thread % 4 * 2 + (s) % 2)

// exponents are where a double has its own
#define LOWEST_FIELD ((1023 + A_LOWEST + B_LOWEST - 1) * ONE_EXPONENT)
#define START_FIELD (LOWEST_FIELD + (52 - ALIGN_BITS) * ONE_EXPONENT + 0x80000)
#define USUAL_FIELDS ((119 - A_LOWEST - B_LOWEST) * ONE_EXPONENT)

struct State {
    double sums[ROW_TILES][COLUMN_TILES][4];
    // what a step finds, and what it starts with
    float powers[ROW_TILES][COLUMN_TILES][4];
    uint32 negatives[ROW_TILES][COLUMN_TILES][4];
    int starts[ROW_TILES][COLUMN_TILES][4];
    bool usual;
    uint4 a[TERM_UNITS][ROW_TILES];
    uint2 b[TERM_UNITS][COLUMN_TILES];
};

#if defined(__CUDACC__)

INNER void add_powers(State* lanes, int i, int j)
{
    float(&d)[4] = lanes->powers[i][j];
    const uint4 a = lanes->a[0][i];
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(lanes->b[0][j].x));
}

INNER void add_negatives(State* lanes, int i, int j)
{
    uint32(&d)[4] = lanes->negatives[i][j];
    const uint4 a = lanes->a[0][i];
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a.z), "r"(a.w), "r"(lanes->b[0][j].y));
}

#define A_TERM(word) "d"(from_words((int)(word), 0))
#define B_TERM(word) "d"(from_words((int)(word), LITTLE))

INNER void add_terms(State* lanes, int i, int j)
{
    double(&d)[4] = lanes->sums[i][j];
    const uint4 a = lanes->a[0][i];
    const uint2 b = lanes->b[0][j];
#if TERM_UNITS == 1
    asm("mma.sync.aligned.m16n8k8.row.col.rz.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : A_TERM(a.x), A_TERM(a.y), A_TERM(a.z), A_TERM(a.w), B_TERM(b.x), B_TERM(b.y));
#else
    const uint4 more = lanes->a[1][i];
    const uint2 more_b = lanes->b[1][j];
    asm("mma.sync.aligned.m16n8k16.row.col.rz.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : A_TERM(a.x), A_TERM(a.y), A_TERM(a.z), A_TERM(a.w), A_TERM(more.x), A_TERM(more.y), A_TERM(more.z), A_TERM(more.w),
          B_TERM(b.x), B_TERM(b.y), B_TERM(more_b.x), B_TERM(more_b.y));
#endif
}

#else

// The instructions on the registers of a warp.
#define EACH_PAIR_OF_LINES \
    for (int row = 0; row < 16; row++) for (int column = 0; column < 8; column++) for (int lane = 0; lane < 4; lane++)
#define LANES_OF_PAIR(unit) \
    State& result = lanes[row % 8 * 4 + column / 2]; \
    const int s = row / 8 * 2 + column % 2; \
    const uint4 a = lanes[row % 8 * 4 + lane].a[unit][i]; \
    const uint2 b = lanes[column * 4 + lane].b[unit][j];

INNER void add_powers(State* lanes, int i, int j)
{
    EACH_PAIR_OF_LINES {
        LANES_OF_PAIR(0)
        const uint32 x = row < 8 ? a.x : a.y;
        for (int half = 0; half < 2; half++)
            result.powers[i][j][s] += float_of(x >> 16 * half << 16) * float_of(b.x >> 16 * half << 16);
    }
}

INNER void add_negatives(State* lanes, int i, int j)
{
    EACH_PAIR_OF_LINES {
        LANES_OF_PAIR(0)
        result.negatives[i][j][s] = (uint32)dot_of_bytes(row < 8 ? a.z : a.w, b.y, (int)result.negatives[i][j][s]);
    }
}

INNER void add_terms(State* lanes, int i, int j)
{
    for (int unit = 0; unit < TERM_UNITS; unit++)
        EACH_PAIR_OF_LINES {
            LANES_OF_PAIR(unit)
            double& sum = result.sums[i][j][s];
            sum = fma_toward_zero(from_words((int)(row < 8 ? a.x : a.y), 0), from_words((int)b.x, LITTLE), sum);
            sum = fma_toward_zero(from_words((int)(row < 8 ? a.z : a.w), 0), from_words((int)b.y, LITTLE), sum);
        }
}

#endif

// Words of values of a unit, or of powers and signs.
INNER void load_fragments(State& state, const uint32* a, const uint32* b, int unit, int thread)
{
    const int warp = thread / 32, lane = thread % 32;
    EACH_ROW_TILE state.a[unit][i] = ((const uint4*)a)[(warp / WARPS_IN_ROW * ROW_TILES + i) * 32 + lane];
    EACH_COLUMN_TILE state.b[unit][j] = ((const uint2*)b)[(warp % WARPS_IN_ROW * COLUMN_TILES + j) * 32 + lane];
}

#if SCALE_BLOCK
// The exponent of the scales of a result, where a double has its own.
INNER int shift_of(const uint32* a, const uint32* b, int step, int i, int j, int s, int thread)
{
    return (int)(a[(SCALES + step) * LINES + ROW(i, s)] + b[(SCALES + step) * LINES + COLUMN(j, s)]);
}
#define SHIFT shift_of(a, b, step, i, j, s, thread)
#else
#define SHIFT 0
#endif

// Sums as a step starts with them. Terms are without scales, so that an accumulator is divided by them. What is not usual: no product beside
// a small accumulator, which may not have 2**-99 of the scales, and a large accumulator. In all else a sum is 0 or a normal number.
INNER void begin(State& state, const uint32* a, const uint32* b, int step, int thread)
{
    int least = USUAL_FIELDS, most = 0;
    EACH_SUM {
        const int high = high_word(state.sums[i][j][s]) & 0x7FFFFFFF, shift = SHIFT;
        const int field = add_max(high, -LOWEST_FIELD - shift, (int)(bits_of(state.powers[i][j][s]) >> (3 + EXPONENT_LOG)));
        least = smaller(least, field), most = larger(most, field + shift);
        if (SCALE_BLOCK)
            least = smaller(least, field + shift + LOWEST_FIELD - (1023 - 100) * ONE_EXPONENT);
        state.starts[i][j][s] = (field & ~(ONE_EXPONENT - 1)) + START_FIELD;
    }
    state.usual = least >= ONE_EXPONENT && most < USUAL_FIELDS;
    if (!state.usual)
        EACH_SUM {
            const int found = (int)(bits_of(state.powers[i][j][s]) >> (23 + EXPONENT_LOG)), shift = SHIFT / ONE_EXPONENT;
            const int products = found ? found - 1 + A_LOWEST + B_LOWEST + shift : NO_EXPONENT;
            const int emax = larger(larger(products, exponent_of(state.sums[i][j][s])), EMAX_FLOOR);
            state.starts[i][j][s] = (1023 + 52 - ALIGN_BITS - shift + smaller(emax, HIGHEST_EXPONENT)) * ONE_EXPONENT + 0x80000;
        }
    EACH_SUM {
        double& sum = state.sums[i][j][s];
        const double scale = from_words(high_word(A_LITTLE_MORE) - SHIFT, low_word(A_LITTLE_MORE));
        sum = fma_toward_zero(sum, scale, from_words(state.starts[i][j][s], (int)state.negatives[i][j][s]));
    }
}

INNER void end(State& state, const uint32* a, const uint32* b, int step, int thread)
{
    EACH_SUM {
        double& sum = state.sums[i][j][s];
        const int shift = SHIFT;
        const double start = from_words(state.starts[i][j][s] + shift, 0);
        sum = SCALE_BLOCK ? fma_nearest(sum, from_words(1023 * ONE_EXPONENT + shift, 0), -start) : add_nearest(sum, -start);
    }
    if (state.usual)
        EACH_SUM state.sums[i][j][s] = with_bits_cleared(state.sums[i][j][s]);
    else
        EACH_SUM state.sums[i][j][s] = toward_zero(state.sums[i][j][s]);
}

INNER void advance_stage(State* states, const uint32* a, const uint32* b)
{
    for (int step = 0; step < DEPTH / STEP; step++) {
        const int first = step * (STEP / UNIT);
        EACH_THREAD {
            State& state = OWN(states);
            EACH_SUM state.powers[i][j][s] = 0.0f, state.negatives[i][j][s] = (uint32)high_word(state.sums[i][j][s]) >> 31;
        }
        ONE_BY_ONE for (int unit = first; unit < first + STEP / UNIT; unit++) {
            const int place = (2 * unit + 1) * UNIT_WORDS;
            EACH_THREAD load_fragments(OWN(states), a + place, b + place, 0, thread);
            EACH_WARP EACH_TILE add_powers(WARP(states), i, j), add_negatives(WARP(states), i, j);
        }
        EACH_THREAD begin(OWN(states), a, b, step, thread);
        ONE_BY_ONE for (int unit = first; unit < first + STEP / UNIT; unit += TERM_UNITS) {
            EACH_THREAD UNROLL for (int more = 0; more < TERM_UNITS; more++) {
                const int place = 2 * (unit + more) * UNIT_WORDS;
                load_fragments(OWN(states), a + place, b + place, more, thread);
            }
            EACH_WARP EACH_TILE add_terms(WARP(states), i, j);
        }
        EACH_THREAD end(OWN(states), a, b, step, thread);
    }
}

// A stage of both panels.
INNER void copy_stage(uint32* shared, const uint32* a, const uint32* b, int64 stage, int64 stages, int thread)
{
    if (stage < stages)
        for (int word = 4 * thread; word < PANEL_WORDS; word += 4 * THREADS) {
            uint32* to = shared + stage % STAGES * 2 * PANEL_WORDS + word;
            copy_of_16_bytes(to, a + stage * PANEL_WORDS + word);
            copy_of_16_bytes(to + PANEL_WORDS, b + stage * PANEL_WORDS + word);
        }
    END_OF_COPIES;
}

KERNEL(THREADS, BLOCKS_PER_PROCESSOR) multiply(
    const uint32* a, const uint32* b, const C_CODE* c, D_CODE* d, int64 a_products, int64 b_products, int64 rows, int64 columns, int64 stages)
{
    SHARED_WORDS(words, STAGES * 2 * PANEL_WORDS);
    State states[STATES];
    const int64 row_panels = (rows + LINES - 1) / LINES, column_panels = (columns + LINES - 1) / LINES;
    const int64 product = BLOCK / (row_panels * column_panels);
    int64 row_panel, column_panel;
    place_block(BLOCK % (row_panels * column_panels), row_panels, column_panels, row_panel, column_panel);
    const int64 first_row = row_panel * LINES, first_column = column_panel * LINES;
    a += (product % a_products * row_panels + row_panel) * stages * PANEL_WORDS;
    b += (product % b_products * column_panels + column_panel) * stages * PANEL_WORDS;
    if (c)
        c += product * rows * columns;
    d += product * rows * columns;
    EACH_THREAD {
        EACH_SUM {
            const int64 row = first_row + ROW(i, s), column = first_column + COLUMN(j, s);
            const bool given = c && row < rows && column < columns;
            OWN(states).sums[i][j][s] = given ? sum_of(c[row * columns + column]) : 0.0;
        }
        for (int64 stage = 0; stage < STAGES - 1; stage++)
            copy_stage(words, a, b, stage, stages, thread);
    }
    for (int64 stage = 0; stage < stages; stage++) {
        WAIT_FOR_COPIES(STAGES - 2);
        BARRIER;
        EACH_THREAD copy_stage(words, a, b, stage + STAGES - 1, stages, thread);
        const uint32* panels = words + stage % STAGES * 2 * PANEL_WORDS;
        advance_stage(states, panels, panels + PANEL_WORDS);
    }
    EACH_THREAD {
        EACH_SUM {
            const int64 row = first_row + ROW(i, s), column = first_column + COLUMN(j, s);
            if (row < rows && column < columns)
                d[row * columns + column] = (D_CODE)code_of(OWN(states).sums[i][j][s]);
        }
    }
}
