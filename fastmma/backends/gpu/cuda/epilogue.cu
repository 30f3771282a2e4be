// What becomes of sums in the machine's memory: steps of an epilogue, parts of k that are joined, roundings. A thread does an element.

enum { MULTIPLY, ADD, MULTIPLY_ADD, ACCUMULATE, RELU, TO_BF16, TO_F16, FROM_S32 };  // OPERATIONS of fastmma.kernels.params
enum { PLAIN, FUSED, MULTIPLIED, FUSED_EACH, MULTIPLIED_EACH };  // PROMOTIONS of fastmma.kernels.params
enum { F32, S32, F16, F64 };

INNER bool is_nan(uint32 bits) { return (bits & 0x7FFFFFFFu) > infinity(false); }
INNER uint32 canonical(float x) { return is_nan(bits_of(x)) ? canonical_nan(false) : bits_of(x); }

INNER uint32 rounded_to_bf16(uint32 bits) { return (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u; }

// Operands of a step are f32 with strides of elements, which may be 0.
KERNEL(THREADS, 1) step(
    float* sums, int64 stride, int64 rows, int64 columns, int64 operation, const float* first, int64 first_row, int64 first_column,
    const float* second, int64 second_row, int64 second_column)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread, row = index / columns, column = index % columns;
        if (row < rows) {
            float& sum = sums[row * stride + column];
            const float x = sum, y = first ? first[row * first_row + column * first_column] : 0.0f;
            const float z = second ? second[row * second_row + column * second_column] : 0.0f;
            uint32 bits = bits_of(x);
            switch (operation) {
            case MULTIPLY: bits = canonical(multiply_nearest(x, y)); break;
            case ADD: bits = canonical(add_nearest(x, y)); break;
            case MULTIPLY_ADD: bits = canonical(fma_nearest(x, y, z)); break;
            case ACCUMULATE: bits = canonical(fma_nearest(y, z, x)); break;
            case RELU: bits = bits >> 31 && !is_nan(bits) ? 0 : bits; break;
            case TO_BF16: bits = is_nan(bits) ? bits : rounded_to_bf16(bits); break;
            case TO_F16: bits = converted(converted(bits, false, true), true, false); break;
            case FROM_S32: bits = bits_of(from_integer((int)bits)); break;
            }
            sum = float_of(is_nan(bits) ? canonical_nan(false) : bits);
        }
    }
}

// Sums that have been rounded to a 16-bit format, as its codes.
KERNEL(THREADS, 1) narrow(const uint32* sums, uint16* codes, int64 count, int64 half)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread;
        if (index < count)
            codes[index] = (uint16)(half ? converted(sums[index], false, true) : sums[index] >> 16);
    }
}

// f32 as codes of tf32, to nearest even.
KERNEL(THREADS, 1) round_to_tf32(const uint32* numbers, uint32* codes, int64 count, int64 nan)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread;
        if (index < count) {
            const uint32 bits = numbers[index];
            codes[index] = is_nan(bits) ? (uint32)nan : (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000u;
        }
    }
}

// Entries of a table, of 1, 2 or 4 bytes, for codes of one byte.
KERNEL(THREADS, 1) look_up(const uint8* codes, const void* table, void* entries, int64 count, int64 bytes)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread;
        if (index < count) {
            const int code = codes[index];
            switch (bytes) {
            case 1: ((uint8*)entries)[index] = ((const uint8*)table)[code]; break;
            case 2: ((uint16*)entries)[index] = ((const uint16*)table)[code]; break;
            case 4: ((uint32*)entries)[index] = ((const uint32*)table)[code]; break;
            }
        }
    }
}

// Partial sums of a chunk of k join running totals; both are (products, rows, columns), scales have strides of elements.
KERNEL(THREADS, 1) promote(
    const float* partials, float* totals, int64 products, int64 rows, int64 columns, int64 rule, const float* scales_a, int64 a_product,
    int64 a_row, const float* scales_b, int64 b_product, int64 b_column)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread, row = index / columns % rows, column = index % columns;
        const int64 product = index / columns / rows;
        if (product < products) {
            const float x = partials[index], total = totals[index];
            const float a = scales_a ? scales_a[product * a_product + row * a_row] : 1.0f;
            const float b = scales_b ? scales_b[product * b_product + column * b_column] : 1.0f;
            float sum = total;
            switch (rule) {
            case PLAIN: sum = add_nearest(total, x); break;
            case FUSED: sum = fma_nearest(multiply_nearest(a, b), x, total); break;
            case MULTIPLIED: sum = add_nearest(total, multiply_nearest(multiply_nearest(a, b), x)); break;
            case FUSED_EACH: sum = fma_nearest(multiply_nearest(x, a), b, total); break;
            case MULTIPLIED_EACH: sum = add_nearest(total, multiply_nearest(multiply_nearest(x, a), b)); break;
            }
            totals[index] = float_of(canonical(sum));
        }
    }
}

KERNEL(THREADS, 1) join(const void* totals, const void* parts, void* results, int64 count, int64 format)
{
    EACH_THREAD {
        const int64 index = BLOCK * THREADS + thread;
        if (index < count) {
            const uint32* x = (const uint32*)totals + index, *y = (const uint32*)parts + index;
            const uint16* short_x = (const uint16*)totals + index, *short_y = (const uint16*)parts + index;
            switch (format) {
            case F32: ((uint32*)results)[index] = canonical(add_nearest(float_of(*x), float_of(*y))); break;
            case S32: ((uint32*)results)[index] = *x + *y; break;
            case F16: ((uint16*)results)[index] = (uint16)ieee_sum(*short_x, *short_y, true); break;
            case F64: {
                const double sum = add_nearest(((const double*)totals)[index], ((const double*)parts)[index]);
                ((double*)results)[index] = sum != sum ? double_of(0xFFF8000000000000ull) : sum;
            }
            }
        }
    }
}
