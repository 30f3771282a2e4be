// Which line of which product, and which part of k, a thread packs: lines in panels of LINES, stages of each one after the other.
struct Place {
    int64 product, line, stage, panel;  // the panel counts those of all products
};

INNER Place place_of_line(int64 index, int64 count, int64 stages)
{
    const int64 panels = (count + LINES - 1) / LINES, padded = panels * LINES, line = index % padded;
    const int64 product = index / padded / stages;
    const Place place = {product, line, index / padded % stages, product * panels + line / LINES};
    return place;
}

// Blocks that run together share rows and columns, so that these stay in a cache.
INNER void place_block(int64 index, int64 row_blocks, int64 column_blocks, int64& row, int64& column)
{
    const int64 band = 16 * column_blocks, first = index / band * 16, height = smaller(row_blocks - first, (int64)16);
    row = first + index % band % height;
    column = index % band / height;
}
