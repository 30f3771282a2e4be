// What a GPU and plain C++ call differently. As plain C++ the threads of a block run one after another, phase by phase,
// so that a kernel can be executed without a GPU.
typedef long long int64;
typedef unsigned long long uint64;
typedef unsigned int uint32;
typedef unsigned short uint16;
typedef unsigned char uint8;

#ifdef __CUDACC__

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define INNER static __device__ __forceinline__
#define SHARED_WORDS(name, count) extern __shared__ uint4 fours_of_##name[]; uint32* name = (uint32*)fours_of_##name
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_8 _Pragma("unroll 8")
#define ONE_BY_ONE _Pragma("unroll 1")
#define BLOCK ((int64)blockIdx.x)
#define EACH_THREAD for (int thread = threadIdx.x, once = 1; once; once = 0)
#define STATES 1
#define OWN(states) states[0]
#define BARRIER __syncthreads()
#define EACH_WARP for (int once = 1; once; once = 0)
#define WARP(states) states
#define END_OF_COPIES asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT_FOR_COPIES(stages) asm volatile("cp.async.wait_group %0;" :: "n"(stages) : "memory")

#define SHOW_TO_WARPGROUPS asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define START_OF_WARPGROUP asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define END_OF_WARPGROUP \
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); \
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")

// from global to shared memory, without waiting
INNER void copy_of_16_bytes(void* to, const void* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"((uint32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

INNER double from_words(int high, int low) { return __hiloint2double(high, low); }
INNER int high_word(double value) { return __double2hiint(value); }
INNER int low_word(double value) { return __double2loint(value); }
INNER uint64 bits_of(double value) { return (uint64)__double_as_longlong(value); }
INNER double double_of(uint64 bits) { return __longlong_as_double((int64)bits); }
INNER uint32 bits_of(float value) { return (uint32)__float_as_int(value); }
INNER float float_of(uint32 bits) { return __int_as_float((int)bits); }
INNER int leading_zeros(uint64 word) { return __clzll((int64)word); }
INNER int ones(uint32 word) { return __popc(word); }
INNER double add_nearest(double x, double y) { return __dadd_rn(x, y); }
INNER double add_toward_zero(double x, double y) { return __dadd_rz(x, y); }
INNER double multiply_nearest(double x, double y) { return __dmul_rn(x, y); }
INNER double fma_nearest(double x, double y, double z) { return __fma_rn(x, y, z); }
INNER double fma_toward_zero(double x, double y, double z) { return __fma_rz(x, y, z); }
INNER double fma_down(double x, double y, double z) { return __fma_rd(x, y, z); }
INNER double fma_up(double x, double y, double z) { return __fma_ru(x, y, z); }

// CuPy has NVRTC flush subnormal floats to zero, but not those of instructions that are spelled out
INNER float add_nearest(float x, float y)
{
    float result;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
INNER float multiply_nearest(float x, float y)
{
    float result;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
INNER float fma_nearest(float x, float y, float z)
{
    float result;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(x), "f"(y), "f"(z));
    return result;
}
INNER float narrowed(double value)
{
    float result;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(result) : "d"(value));
    return result;
}
INNER float from_integer(int value) { return __int2float_rn(value); }
INNER double widened(float value)
{
    double result;
    asm("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(value));
    return result;
}

// of two 16-bit lanes: max(x + y, z)
INNER uint32 add_max_pair(uint32 x, uint32 y, uint32 z) { return __viaddmax_s16x2(x, y, z); }
INNER int add_max(int x, int y, int z) { return __viaddmax_s32(x, y, z); }
// z plus the dot product of four signed bytes
INNER int dot_of_bytes(uint32 x, uint32 y, int z) { return __dp4a((int)x, (int)y, z); }

#if __CUDA_ARCH__ >= 800
#define HAS_BYTE_MATRICES 1
// to 16 by 8 words of a warp, the products of 16 by 16 and 16 by 8 signed bytes
INNER void add_byte_matrices(uint32 upper, uint32 lower, uint32 columns, uint32& d0, uint32& d1, uint32& d2, uint32& d3)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3)
        : "r"(upper), "r"(lower), "r"(columns));
}
#endif

#else

#include <fenv.h>
#include <string.h>

#define KERNEL(threads, blocks) extern "C" void
#define INNER static inline
#define UNROLL
#define UNROLL_BY_8
#define ONE_BY_ONE
#define BLOCK block_index
#define EACH_THREAD for (int thread = 0; thread < THREADS; thread++)
#define STATES THREADS
#define OWN(states) states[thread]
#define BARRIER
#define EACH_WARP for (int warp = 0; warp < THREADS / 32; warp++)
#define WARP(states) (states + 32 * warp)
#define END_OF_COPIES
#define WAIT_FOR_COPIES(stages)

static int64 block_index;
extern "C" void set_block(int64 index) { block_index = index; }

struct alignas(8) uint2 { uint32 x, y; };
struct alignas(16) uint4 { uint32 x, y, z, w; };
#define SHARED_WORDS(name, count) alignas(16) static uint32 name[count]

template <typename To, typename From> static inline To same_bits(From value)
{
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

INNER void copy_of_16_bytes(void* to, const void* from) { memcpy(to, from, 16); }
INNER double from_words(int high, int low) { return same_bits<double>((uint64)(uint32)high << 32 | (uint32)low); }
INNER int high_word(double value) { return (int)(same_bits<uint64>(value) >> 32); }
INNER int low_word(double value) { return (int)same_bits<uint64>(value); }
INNER uint64 bits_of(double value) { return same_bits<uint64>(value); }
INNER double double_of(uint64 bits) { return same_bits<double>(bits); }
INNER uint32 bits_of(float value) { return same_bits<uint32>(value); }
INNER float float_of(uint32 bits) { return same_bits<float>(bits); }
INNER int leading_zeros(uint64 word) { return word ? __builtin_clzll(word) : 64; }
INNER int ones(uint32 word) { return __builtin_popcount(word); }

#ifdef __SSE2__
// fesetround writes the control word of x87, too, which takes longer than the operation
INNER void round_as(int mode) { __builtin_ia32_ldmxcsr(0x1F80u | (uint32)mode << 3); }
#else
INNER void round_as(int mode) { fesetround(mode); }
#endif

// volatile keeps the compiler from moving the operation across the changes of the rounding mode
static double fma_in_mode(int mode, double x, double y, double z)
{
    volatile double a = x, b = y, c = z;
    round_as(mode);
    volatile double result = __builtin_fma(a, b, c);
    round_as(FE_TONEAREST);
    return result;
}

INNER double add_nearest(double x, double y) { volatile double result = x + y; return result; }
INNER double add_toward_zero(double x, double y) { return fma_in_mode(FE_TOWARDZERO, x, 1.0, y); }
INNER double multiply_nearest(double x, double y) { volatile double result = x * y; return result; }
INNER double fma_nearest(double x, double y, double z) { volatile double result = __builtin_fma(x, y, z); return result; }
INNER double fma_toward_zero(double x, double y, double z) { return fma_in_mode(FE_TOWARDZERO, x, y, z); }
INNER double fma_down(double x, double y, double z) { return fma_in_mode(FE_DOWNWARD, x, y, z); }
INNER double fma_up(double x, double y, double z) { return fma_in_mode(FE_UPWARD, x, y, z); }
INNER float add_nearest(float x, float y) { volatile float result = x + y; return result; }
INNER float multiply_nearest(float x, float y) { volatile float result = x * y; return result; }
INNER float from_integer(int value) { return (float)value; }
INNER float narrowed(double value) { return (float)value; }
INNER double widened(float value) { return (double)value; }
INNER float fma_nearest(float x, float y, float z) { volatile float result = __builtin_fmaf(x, y, z); return result; }

INNER uint32 add_max_pair(uint32 x, uint32 y, uint32 z)
{
    uint32 result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        short sum = (short)((x >> shift) + (y >> shift)), other = (short)(z >> shift);
        result |= (uint32)(uint16)(sum > other ? sum : other) << shift;
    }
    return result;
}

INNER int add_max(int x, int y, int z) { return x + y > z ? x + y : z; }

INNER int dot_of_bytes(uint32 x, uint32 y, int z)
{
    for (int shift = 0; shift < 32; shift += 8)
        z += (signed char)(x >> shift) * (signed char)(y >> shift);
    return z;
}

#endif

template <typename T> INNER T larger(T x, T y) { return x > y ? x : y; }
template <typename T> INNER T smaller(T x, T y) { return x < y ? x : y; }
