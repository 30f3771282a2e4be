// Operands in the order of the fragments of matrix instructions: a panel of LINES lines is, for each stage of DEPTH k, a block of words.
//
// Of eight k and eight lines a lane holds two elements of each line, k = lane % 4 and that plus 4: the high words of their values, and two
// words with their powers and signs. Of A it holds sixteen lines: both lines' first values, then second ones; both powers, both signs.

#define UNIT 8  // k
#define UNIT_WORDS (8 * LINES)  // of values, and as many of powers and signs
#define SCALES (2 * DEPTH)  // words of a line before those of scales
#define ONE_EXPONENT (1 << 20)  // where a double has its own
#define A_BIAS ((EXPONENT_BITS + 127) / 2)

// An element's power of two as bf16: its place among exponents from `lowest` on.
INNER uint32 power_of(const Entry& entry, int lowest, int bias)
{
    return entry.significand == 0 ? 0 : (uint32)(EXPONENT_BITS * (entry.exponent - lowest) + bias) << 7;
}

template <typename Operand> INNER bool pack_stage(const Operand& lines, int64 line, int64 start, bool is_left, uint32* words)
{
    bool marked = false, present;
    const int lowest = is_left ? A_LOWEST : B_LOWEST, bias = is_left ? A_BIAS : EXPONENT_BITS + 127 - A_BIAS;
    const uint32 negative = is_left ? 0x0001 : 0x0100, positive = is_left ? 0x0100 : 0x0001;
    const int place_of_line = is_left ? line % LINES / 16 * 128 + line % 8 * 16 + line % 16 / 8 : line % LINES * 8;
    for (int place = 0; place < DEPTH / 2; place++) {
        const int unit = place / 4, lane = place % 4;
        uint32 powers = 0, signs = 0, *of_lane = words + 2 * unit * UNIT_WORDS + place_of_line + (is_left ? 4 : 2) * lane;
        for (int half = 0; half < 2; half++) {
            const int position = unit * UNIT + lane + 4 * half;
            Entry entry = entry_at(lines, line, start + position - position % PERIOD + place_of(position % PERIOD), present);
            if (entry.special) {
                marked = true;
                entry = lines.table[0];
            }
            of_lane[(is_left ? 2 : 1) * half] = (uint32)entry.value_high;
            powers |= power_of(entry, lowest, bias) << 16 * half;
            signs |= (entry.value_high < 0 ? negative : positive) << 16 * half;
        }
        of_lane[UNIT_WORDS] = powers;
        of_lane[UNIT_WORDS + (is_left ? 2 : 1)] = signs;
    }
#if SCALE_BLOCK
    for (int step = 0; step < DEPTH / STEP; step++) {
        const int64 k = start + step * STEP;
        const Entry scale = k < lines.depth ? scale_at(lines, line, k) : lines.scale_table[0];
        marked = marked || scale.special;
        words[(SCALES + step) * LINES + line % LINES] = (uint32)(scale.special ? 0 : scale.exponent * ONE_EXPONENT);
    }
#endif
    return marked;
}
