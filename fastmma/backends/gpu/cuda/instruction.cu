// Whole products by an instruction of the GPU in the machine that has the bits wanted: a block of threads computes LINES by LINES results,
// a warp ROW_TILES by COLUMN_TILES tiles of m16n8.
//
// Operands are packed in the order of fragments. Along k a line is words; of the words of a step, a lane holds one in four, LANE_WORDS of
// them. A panel of LINES lines is step after step, of these eight lines after eight lines, of these lane after lane; for a warpgroup, which
// reads shared memory itself, sixteen bytes after sixteen bytes of k, of these line after line.

#define WARPS_IN_ROW (WARPGROUP ? 1 : 4)
#define ROW_TILES (WARPGROUP ? 1 : 4)
#define COLUMN_TILES (WARPGROUP ? 16 : 4)
#define WARP_ROWS (16 * ROW_TILES)
#define WARP_COLUMNS (8 * COLUMN_TILES)
#define WORDS_OF_STEP (4 * LANE_WORDS)  // of a line
#define ELEMENTS_OF_WORD (INSTRUCTION_K / WORDS_OF_STEP)
#define ELEMENT_BITS (8 * (int)sizeof(WORD) / ELEMENTS_OF_WORD)
#define PANEL_WORDS (WORDS_OF_STEP * LINES)  // of a step
#define SHARED_STEPS (STAGE_STEPS * STAGES)
#define EACH_TILE UNROLL for (int i = 0; i < ROW_TILES; i++) UNROLL for (int j = 0; j < COLUMN_TILES; j++)

// An element as the instruction takes it: bits of an xor are signs, so that a product is 1 where they are equal, and else -1.
template <typename Code> INNER WORD element_of(Code code, int bits, bool negative)
{
#if BIT_XOR
    return code ? 0xFF : 1;
#endif
    if (bits == ELEMENT_BITS)
        return (WORD)code;
    const uint32 value = (uint32)code << (32 - bits) >> (32 - bits);
    return negative && value >> (bits - 1) ? (value | ~0u << bits) & 0xFF : value;
}

// The words of a line in a step; lines and k past the end are zeros.
template <typename Operand>
INNER void pack(const Operand& lines, const Place& place, int64 count, int64 steps, int bits, bool negative, WORD* panels)
{
    const int64 line = place.line, step = place.stage;
    WORD* words = panels + (place.panel * steps + step) * PANEL_WORDS + line % LINES / 8 * 8 * WORDS_OF_STEP;
    for (int word = 0; word < WORDS_OF_STEP; word++) {
        WORD packed = 0;
        for (int element = 0; element < ELEMENTS_OF_WORD; element++) {
            const int64 k = step * INSTRUCTION_K + word * ELEMENTS_OF_WORD + element;
            bool present = false;
            if (line < count && k < lines.depth) {
                const auto code = code_at(lines, line, k, present);
                if (present)
                    packed |= element_of(code, bits, negative) << (element * ELEMENT_BITS) % (8 * (int)sizeof(WORD));
            }
        }
        words[WARPGROUP ? word / 4 * 32 + line % 8 * 4 + word % 4 : line % 8 * WORDS_OF_STEP + word % 4 * LANE_WORDS + word / 4] = packed;
    }
}

KERNEL(THREADS, 1) pack_rows(
    const A_CODE* codes, int64 product_stride, int64 stride, int64 unit, const uint8* metadata, const signed char* places, WORD* panels,
    int64 products, int64 rows, int64 depth, int64 steps)
{
    EACH_THREAD {
        const Place place = place_of_line(BLOCK * THREADS + thread, rows, steps);
        const uint8* words = SPARSE ? metadata + place.product * rows * (depth / CHUNK) : metadata;
        const Rows lines = {codes + place.product * product_stride, stride, unit, words, places, 0, 0, 0, 0, 0, depth};
        if (place.product < products)
            pack(lines, place, rows, steps, A_BITS, A_NEGATIVE, panels);
    }
}

KERNEL(THREADS, 1) pack_columns(
    const B_CODE* codes, int64 product_stride, int64 stride, int64 unit, WORD* panels, int64 products, int64 columns, int64 depth, int64 steps)
{
    EACH_THREAD {
        const Place place = place_of_line(BLOCK * THREADS + thread, columns, steps);
        const Columns lines = {codes + place.product * product_stride, stride, unit, 0, 0, 0, 0, 0, 0, 0, depth};
        if (place.product < products)
            pack(lines, place, columns, steps, B_BITS, B_NEGATIVE, panels);
    }
}

INNER uint32 sum_of_code(uint32 code) { return code; }
INNER double sum_of_code(uint64 code) { return double_of(code); }
INNER D_CODE code_of_sum(uint32 sum) { return (D_CODE)sum; }
INNER D_CODE code_of_sum(double sum) { return (D_CODE)bits_of(sum); }

struct State {
    SUM sums[ROW_TILES][COLUMN_TILES][SUMS];
#if !WARPGROUP
    WORD a[ROW_TILES][2 * LANE_WORDS], b[COLUMN_TILES][LANE_WORDS];
#endif
};

#if WARPGROUP

// A matrix in shared memory, not swizzled: 128 bytes from k to k, 256 from eight lines to eight lines.
INNER uint64 descriptor_of(const WORD* words)
{
    return (uint64)((uint32)__cvta_generic_to_shared(words) >> 4 & 0x3FFF) | (uint64)(128 >> 4) << 16 | (uint64)(256 >> 4) << 32;
}

// A warpgroup multiplies 64 rows; what it adds to must not be touched until it has.
INNER void multiply_panels(State& state, const WORD* a, const WORD* b, int thread)
{
    SUM (&d)[COLUMN_TILES][SUMS] = state.sums[0];
    const uint64 a_descriptor = descriptor_of(a + thread / 128 * 64 * WORDS_OF_STEP), b_descriptor = descriptor_of(b);
    EXECUTE;
}

#elif defined(__CUDACC__)

INNER void multiply_tile(State* lanes, int i, int j)
{
    SUM (&d)[SUMS] = lanes->sums[i][j];
    const WORD (&a)[2 * LANE_WORDS] = lanes->a[i];
    const WORD (&b)[LANE_WORDS] = lanes->b[j];
    EXECUTE;
}

#else

// The instruction on the registers of a warp, for exact sums and for chains of fma.
INNER void multiply_tile(State* lanes, int i, int j)
{
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            SUM& sum = lanes[row % 8 * 4 + column / 2].sums[i][j][row / 8 * 2 + column % 2];
            int64 exact = 0;
            for (int k = 0; k < INSTRUCTION_K; k++) {
                const int word = k / ELEMENTS_OF_WORD, place = k % ELEMENTS_OF_WORD * ELEMENT_BITS;
                const WORD x = lanes[row % 8 * 4 + word % 4].a[i][word / 4 * 2 + row / 8] >> place;
                const WORD y = lanes[column * 4 + word % 4].b[j][word / 4] >> place;
#if CHAIN
                sum = double_of(chained(x, y, bits_of(sum)));
#else
                exact += (int64)(EXECUTED_A_SIGNED ? (int)(signed char)x : (int)(uint8)x) * (EXECUTED_B_SIGNED ? (int)(signed char)y : (int)(uint8)y);
#endif
            }
#if !CHAIN
            exact += (int)sum;
            sum = (SUM)(SATFINITE ? larger(smaller(exact, (int64)2147483647), (int64)-2147483648LL) : exact);
#endif
        }
}

#endif

#if !WARPGROUP
INNER void load_words(const WORD* words, WORD (&found)[LANE_WORDS])
{
#if LANE_WORDS == 1
    found[0] = words[0];
#else
    const uint2 both = *(const uint2*)words;
    found[0] = both.x, found[1] = both.y;
#endif
}

INNER void load_fragments(State& state, const WORD* a, const WORD* b, int thread)
{
    const int warp = thread / 32, lane = thread % 32;
    UNROLL for (int i = 0; i < ROW_TILES; i++)
        UNROLL for (int half = 0; half < 2; half++) {
            const WORD* words = a + ((warp / WARPS_IN_ROW * ROW_TILES + i) * 2 + half) * 8 * WORDS_OF_STEP + lane * LANE_WORDS;
            WORD found[LANE_WORDS];
            load_words(words, found);
            UNROLL for (int word = 0; word < LANE_WORDS; word++)
                state.a[i][2 * word + half] = found[word];
        }
    UNROLL for (int j = 0; j < COLUMN_TILES; j++)
        load_words(b + (warp % WARPS_IN_ROW * COLUMN_TILES + j) * 8 * WORDS_OF_STEP + lane * LANE_WORDS, state.b[j]);
}
#endif

// The panels of a stage, A's and B's of each step in turn.
INNER void copy_stage(WORD* shared, const WORD* a, const WORD* b, int64 stage, int64 steps, int thread)
{
    const int each = 16 / (int)sizeof(WORD);
    UNROLL for (int step = 0; step < STAGE_STEPS; step++)
        if (stage * STAGE_STEPS + step < steps)
            for (int word = each * thread; word < PANEL_WORDS; word += each * THREADS) {
                WORD* to = shared + (stage % STAGES * STAGE_STEPS + step) * 2 * PANEL_WORDS + word;
                const int64 from = (stage * STAGE_STEPS + step) * PANEL_WORDS + word;
                copy_of_16_bytes(to, a + from);
                copy_of_16_bytes(to + PANEL_WORDS, b + from);
            }
    END_OF_COPIES;
}

KERNEL(THREADS, BLOCKS_PER_PROCESSOR) multiply(
    const WORD* a, const WORD* b, const C_CODE* c, D_CODE* d, int64 a_products, int64 b_products, int64 rows, int64 columns, int64 depth,
    int64 steps)
{
    SHARED_WORDS(shared, 2 * SHARED_STEPS * PANEL_WORDS * (int)(sizeof(WORD) / 4));
    WORD* words = (WORD*)shared;
    State states[STATES];
    const int64 row_blocks = (rows + LINES - 1) / LINES, column_blocks = (columns + LINES - 1) / LINES;
    const int64 product = BLOCK / (row_blocks * column_blocks), stages = (steps + STAGE_STEPS - 1) / STAGE_STEPS;
    int64 row_block, column_block;
    place_block(BLOCK % (row_blocks * column_blocks), row_blocks, column_blocks, row_block, column_block);
    a += (product % a_products * row_blocks + row_block) * steps * PANEL_WORDS;
    b += (product % b_products * column_blocks + column_block) * steps * PANEL_WORDS;
    if (c)
        c += product * rows * columns;
    d += product * rows * columns;
    const int64 first_row = row_block * LINES, first_column = column_block * LINES;
#define ROW(i, sum) (first_row + thread / 32 / WARPS_IN_ROW * WARP_ROWS + 16 * i + (sum) / 2 * 8 + thread % 32 / 4)
#define COLUMN(j, sum) (first_column + thread / 32 % WARPS_IN_ROW * WARP_COLUMNS + 8 * j + thread % 4 * 2 + (sum) % 2)
    EACH_THREAD {
        EACH_TILE UNROLL for (int sum = 0; sum < 4; sum++) {
            const int64 row = ROW(i, sum), column = COLUMN(j, sum);
            const bool given = c && !BIT_XOR && row < rows && column < columns;
            const C_CODE code = given ? c[row * columns + column] : (C_CODE)0;
#if SUMS == 4
            OWN(states).sums[i][j][sum] = sum_of_code(code);
#else
            SUM& pair = OWN(states).sums[i][j][sum / 2];
            pair = sum % 2 ? pair | (SUM)code << 16 : (SUM)code;
#endif
        }
        for (int64 stage = 0; stage < STAGES - 1; stage++)
            copy_stage(words, a, b, stage, steps, thread);
    }
    for (int64 stage = 0; stage < stages; stage++) {
        WAIT_FOR_COPIES(STAGES - 2);
#if WARPGROUP
        SHOW_TO_WARPGROUPS;
#endif
        BARRIER;
        EACH_THREAD copy_stage(words, a, b, stage + STAGES - 1, steps, thread);
#if WARPGROUP
        START_OF_WARPGROUP;
#endif
        UNROLL for (int step = 0; step < STAGE_STEPS; step++) {
            const WORD* panels = words + (stage % STAGES * STAGE_STEPS + step) * 2 * PANEL_WORDS;
            if (stage * STAGE_STEPS + step < steps) {
#if WARPGROUP
                EACH_THREAD multiply_panels(OWN(states), panels, panels + PANEL_WORDS, thread);
#else
                EACH_THREAD load_fragments(OWN(states), panels, panels + PANEL_WORDS, thread);
                EACH_WARP EACH_TILE multiply_tile(WARP(states), i, j);
#endif
            }
        }
#if WARPGROUP
        END_OF_WARPGROUP;
#endif
    }
    EACH_THREAD {
        EACH_TILE UNROLL for (int sum = 0; sum < 4; sum++) {
            const int64 row = ROW(i, sum), column = COLUMN(j, sum);
            if (row < rows && column < columns) {
#if BIT_XOR
                const uint32 before = c ? (uint32)c[row * columns + column] : 0;
                d[row * columns + column] = before + (uint32)(((int)depth - (int)OWN(states).sums[i][j][sum]) / 2);
#elif SUMS == 4
                d[row * columns + column] = code_of_sum(OWN(states).sums[i][j][sum]);
#else
                d[row * columns + column] = (D_CODE)(OWN(states).sums[i][j][sum / 2] >> sum % 2 * 16);
#endif
            }
        }
    }
}
