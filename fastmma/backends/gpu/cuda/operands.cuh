// Elements of operands by their codes: a table per format says what each code is, as the numerics row reads it.

// a zero has this exponent, far below every other one; sums of four still fit 16 bits
#define NO_EXPONENT -8000

struct Entry {
    int value_high;   // the high word of the value as double (zeros: tiny ones, so that they have a sign like any other number)
    int exponent;     // by which the element is aligned
    int significand;  // the value is significand * 2**(exponent - fraction bits); of integers it is the value
    int special;
};

// Lines of an operand are rows of A and columns of B; a unit is the distance between neighbours along k.
// Those of sparse A have gaps; codes have some ignored low bits.
template <typename Code, bool HAS_GAPS, int IGNORED> struct Lines {
    const Code* codes;
    int64 line_stride, unit;
    const uint8* metadata;  // of sparse A: 4-bit words, a chunk each
    const signed char* places;  // in a chunk, of the elements that a word names
    const uint8* scales;
    int64 scale_stride, scale_unit;
    const Entry* table;
    const Entry* scale_table;
    int64 depth;
};

// Where the element at some k is stored, or -1 where sparse A has none.
template <typename Code, bool HAS_GAPS, int IGNORED>
INNER int64 stored_place(const Lines<Code, HAS_GAPS, IGNORED>& lines, int64 line, int64 k)
{
    if (!HAS_GAPS)
        return k;
    const int64 chunk = k / CHUNK;
    const signed char* places = lines.places + CHUNK_STORED * lines.metadata[line * (lines.depth / CHUNK) + chunk];
    for (int element = 0; element < CHUNK_STORED; element++)
        if (places[element] == k % CHUNK)
            return chunk * CHUNK_STORED + element;
    return -1;
}

// Code 0 past the end; `present` is whether there is an element at all.
template <typename Code, bool HAS_GAPS, int IGNORED>
INNER Code code_at(const Lines<Code, HAS_GAPS, IGNORED>& lines, int64 line, int64 k, bool& present)
{
    const int64 place = k < lines.depth ? stored_place(lines, line, k) : 0;
    present = place >= 0;
    return k < lines.depth && present ? lines.codes[line * lines.line_stride + place * lines.unit] : (Code)0;
}

template <typename Code, bool HAS_GAPS, int IGNORED>
INNER Entry entry_at(const Lines<Code, HAS_GAPS, IGNORED>& lines, int64 line, int64 k, bool& present)
{
    return lines.table[code_at(lines, line, k, present) >> IGNORED];
}

#if SCALE_BLOCK
template <typename Code, bool HAS_GAPS, int IGNORED>
INNER Entry scale_at(const Lines<Code, HAS_GAPS, IGNORED>& lines, int64 line, int64 k)
{
    return lines.scale_table[lines.scales[line * lines.scale_stride + k / SCALE_BLOCK * lines.scale_unit]];
}
#endif

typedef Lines<A_CODE, SPARSE, A_PADDING> Rows;
typedef Lines<B_CODE, false, B_PADDING> Columns;

// Of one result.
struct Operands {
    Rows a;
    Columns b;
    int64 row, column;
};

// The k, in its period, of a position in the order of the steps.
INNER int place_of(int position)
{
#if SPLIT
    const int half = position / (PERIOD / 2), rest = position % (PERIOD / 2);
    return rest / SPLIT * 2 * SPLIT + half * SPLIT + rest % SPLIT;
#else
    return position;
#endif
}
