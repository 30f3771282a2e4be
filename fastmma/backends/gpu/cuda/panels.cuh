// Operands decoded once and for all: a panel of LINES lines is, for each stage of DEPTH k, a block of words in the order
// in which the tile kernel reads them. Lines with infinities or NaNs are marked; here these count as zeros.

#if GROUP == 1
// words of a stage, for each line: values, pairs of exponents, signs, and the exponents of the steps' scales
#define EXPONENTS DEPTH
#define SIGNS (EXPONENTS + DEPTH / 2)
#define SCALES (SIGNS + DEPTH / 32)
#else
// words of a stage, for each line: four doubled elements each, then of each term the scale's value, its exponent where a double has one, and
// a bit for each element that is not zero
#define LOWEST_SCALE_EXPONENT -900  // of zeros; the sum of two fits where a double has its exponent
#define SCALES (DEPTH / 4)
#define SCALE_EXPONENTS (SCALES + DEPTH / GROUP)
#define MASKS (SCALE_EXPONENTS + DEPTH / GROUP)
#endif

#if GROUP == 1
template <typename Operand> INNER bool pack_stage(const Operand& lines, int64 line, int64 start, bool, uint32* words)
{
    bool marked = false, present;
    words += line % LINES;
    for (int block = 0; block < DEPTH; block += 32) {
        uint32 signs = 0, exponents = 0;
        for (int position = block; position < block + 32; position++) {
            const int64 k = start + position - position % PERIOD + place_of(position % PERIOD);
            Entry entry = entry_at(lines, line, k, present);
            if (entry.special) {
                marked = true;
                entry = lines.table[0];
            }
            words[position * LINES] = (uint32)entry.value_high;
            signs |= (uint32)(entry.value_high < 0) << (position % 32);
            exponents = exponents >> 16 | (uint32)entry.exponent << 16;
            if (position % 2)
                words[(EXPONENTS + position / 2) * LINES] = exponents;
        }
        words[(SIGNS + block / 32) * LINES] = signs;
    }
#if SCALE_BLOCK
    for (int step = 0; step < DEPTH / STEP; step++) {
        const int64 k = start + step * STEP;
        const Entry scale = k < lines.depth ? scale_at(lines, line, k) : lines.scale_table[0];
        marked = marked || scale.special;
        words[(SCALES + step) * LINES] = (uint32)(scale.special ? 0 : scale.exponent);
    }
#endif
    return marked;
}
#else
template <typename Operand> INNER bool pack_stage(const Operand& lines, int64 line, int64 start, bool is_left, uint32* words)
{
    bool marked = false, present;
    words += line % LINES;
    // sums of doubled elements need to be divided by the fractions' unit
    const int scale_shift = is_left ? -(A_FRACTION + B_FRACTION) : 0;
    for (int word = 0; word < DEPTH / 4; word++) {
        uint32 elements = 0;
        for (int byte = 0; byte < 4; byte++) {
            const Entry entry = entry_at(lines, line, start + 4 * word + byte, present);
            const int doubled = entry.significand == 0 ? 0 : entry.significand * (1 << entry.exponent);
            elements |= (uint32)(doubled & 0xFF) << 8 * byte;
        }
        words[word * LINES] = elements;
    }
    for (int term = 0; term < DEPTH / GROUP; term++) {
        const int64 k = start + term * GROUP;
        Entry scale = k < lines.depth ? scale_at(lines, line, k) : lines.scale_table[0];
        marked = marked || scale.special;
        if (scale.special)
            scale = lines.scale_table[0];
        words[(SCALES + term) * LINES] = (uint32)(scale.value_high + scale_shift * (1 << 20));
        uint32 nonzero = 0;
        for (int element = 0; element < GROUP; element++)
            nonzero |= (uint32)(entry_at(lines, line, k + element, present).significand != 0) << element;
        words[(SCALE_EXPONENTS + term) * LINES] = (uint32)(larger(scale.exponent, LOWEST_SCALE_EXPONENT) * (1 << 20));
        words[(MASKS + term) * LINES] = nonzero;
    }
    return marked;
}
#endif
