// One result of f32 off the tensor cores: a chain of IEEE fma from c, to nearest.

INNER D_CODE result_of(const Operands& operands, C_CODE c)
{
    uint32 total = c;
    bool present;
    for (int64 k = 0; k < operands.a.depth; k++) {
        const float x = float_of(code_at(operands.a, operands.row, k, present));
        const float y = float_of(code_at(operands.b, operands.column, k, present));
        total = bits_of(fma_nearest(x, y, float_of(total)));
        total = (total & 0x7FFFFFFFu) > infinity(false) ? canonical_nan(false) : total;
    }
    return total;
}
