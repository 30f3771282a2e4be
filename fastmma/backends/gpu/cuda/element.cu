// The kernel of any method: a thread computes a result, for a batch of products.

KERNEL(THREADS, 1) element(
    const A_CODE* a, const B_CODE* b, const C_CODE* c, D_CODE* d, const uint8* metadata, const uint8* scale_a, const uint8* scale_b,
    const Entry* a_table, const Entry* b_table, const Entry* scale_table, const signed char* places,
    const uint8* marked_rows, const uint8* marked_columns, int64 tiles, int64 rows, int64 columns, int64 depth, int64 stored)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread;
        const int64 column = index % columns, line = index / columns;
        const int64 tile = line / rows, row = line % rows;
        // with marks, only the rows and columns that have one
        if (tile < tiles && (!marked_rows || marked_rows[row] || marked_columns[column])) {
            const int64 scales = SCALE_BLOCK ? (depth + SCALE_BLOCK - 1) / (SCALE_BLOCK + !SCALE_BLOCK) : 0;
            const Operands operands = {
                {a + tile * rows * stored, stored, 1, SPARSE ? metadata + tile * rows * (depth / CHUNK) : metadata, places,
                 scale_a + tile * rows * scales, scales, 1, a_table, scale_table, depth},
                {b + tile * depth * columns, 1, columns, metadata, places,
                 scale_b + tile * scales * columns, 1, columns, b_table, scale_table, depth},
                row,
                column};
            d[index] = result_of(operands, c ? c[index] : (C_CODE)0);
        }
    }
}
