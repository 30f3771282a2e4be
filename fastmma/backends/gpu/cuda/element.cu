// The kernel of any method: a thread computes a result, for a batch of products.

KERNEL(THREADS, 1) element(
    const A_CODE* a, int64 a_product, int64 a_line, int64 a_unit, const B_CODE* b, int64 b_product, int64 b_line, int64 b_unit,
    const C_CODE* c, D_CODE* d, const uint8* metadata, const uint8* scale_a, const uint8* scale_b,
    const Entry* a_table, const Entry* b_table, const Entry* scale_table, const signed char* places,
    const uint8* marked_rows, int64 row_marks, const uint8* marked_columns, int64 column_marks, int64 tiles, int64 rows, int64 columns, int64 depth)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread;
        const int64 column = index % columns, line = index / columns;
        const int64 tile = line / rows, row = line % rows;
        // with marks, only the rows and columns that have one
        if (tile < tiles && (!marked_rows || marked_rows[tile * row_marks + row] || marked_columns[tile * column_marks + column])) {
            const int64 scales = SCALE_BLOCK ? (depth + SCALE_BLOCK - 1) / (SCALE_BLOCK + !SCALE_BLOCK) : 0;
            const Operands operands = {
                {a + tile * a_product, a_line, a_unit, SPARSE ? metadata + tile * rows * (depth / CHUNK) : metadata, places,
                 scale_a + tile * rows * scales, scales, 1, a_table, scale_table, depth},
                {b + tile * b_product, b_line, b_unit, metadata, places,
                 scale_b + tile * scales * columns, 1, columns, b_table, scale_table, depth},
                row,
                column};
            d[index] = result_of(operands, c ? c[index] : (C_CODE)0);
        }
    }
}
