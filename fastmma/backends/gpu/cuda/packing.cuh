// Kernels that pack operands: `pack_stage` packs a line's part in a stage, and says whether it has an infinity or a NaN.

// Lines past the end are zeros.
template <typename Operand>
INNER void pack(Operand lines, const Place& place, int64 count, int64 stages, bool is_left, uint32* panels, uint8* marks)
{
    if (place.line >= count)
        lines.depth = 0;
    uint32* words = panels + (place.panel * stages + place.stage) * STAGE_WORDS * LINES;
    if (pack_stage(lines, place.line, place.stage * DEPTH, is_left, words))
        marks[place.product * count + place.line] = 1;
}

INNER int64 scales_of(int64 depth) { return SCALE_BLOCK ? (depth + SCALE_BLOCK - 1) / (SCALE_BLOCK + !SCALE_BLOCK) : 0; }

KERNEL(THREADS, 1) pack_rows(
    const A_CODE* codes, int64 product_stride, int64 stride, int64 unit, const uint8* metadata, const uint8* scales, const Entry* table,
    const Entry* scale_table, const signed char* places, uint32* panels, uint8* marks, int64 products, int64 rows, int64 depth, int64 stages)
{
    EACH_THREAD {
        const Place place = place_of_line(BLOCK * THREADS + thread, rows, stages);
        const int64 blocks = scales_of(depth), product = place.product;
        const uint8* words = SPARSE ? metadata + product * rows * (depth / CHUNK) : metadata;
        const Rows lines = {codes + product * product_stride, stride, unit, words, places, scales + product * rows * blocks, blocks, 1,
                            table, scale_table, depth};
        if (product < products)
            pack(lines, place, rows, stages, true, panels, marks);
    }
}

KERNEL(THREADS, 1) pack_columns(
    const B_CODE* codes, int64 product_stride, int64 stride, int64 unit, const uint8* scales, const Entry* table, const Entry* scale_table,
    uint32* panels, uint8* marks, int64 products, int64 columns, int64 depth, int64 stages)
{
    EACH_THREAD {
        const Place place = place_of_line(BLOCK * THREADS + thread, columns, stages);
        const int64 product = place.product;
        const Columns lines = {codes + product * product_stride, stride, unit, 0, 0, scales + product * scales_of(depth) * columns, 1, columns,
                               table, scale_table, depth};
        if (product < products)
            pack(lines, place, columns, stages, false, panels, marks);
    }
}
