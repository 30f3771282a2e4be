/* Executes one kernel on the first AMD GPU, by HIP's runtime and its compiler hipRTC: what `fastmma record --hip` compiles and runs.

   It was written without an AMD GPU at hand, and has not run on one yet.

   cc record_hip.c -I/opt/rocm/include -L/opt/rocm/lib -Wl,-rpath,/opt/rocm/lib -lamdhip64 -lhiprtc -o record_hip

   record_hip                          prints the GPU's name, and its processor, such as gfx942:sramecc+:xnack-, a line each
   record_hip SOURCE WAVES LANES A B C D
                                       compiles the kernel `run(a, b, c, d)` of the file SOURCE (HIP C++) for the GPU, copies the files
                                       A, B and C there, launches WAVES blocks of LANES threads, and writes d, of C's size, to D

   It ends with status 0, or prints to stderr what failed and ends with status 1. */

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE = 0, OPERANDS = 4, ARGUMENTS = 8 };

typedef struct {
    char *bytes;
    size_t size;
} Data;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check_hip(hipError_t status, const char *what)
{
    if (status != hipSuccess)
        fail(what, hipGetErrorString(status));
}

static void check_compiler(hiprtcResult status, const char *what)
{
    if (status != HIPRTC_SUCCESS)
        fail(what, hiprtcGetErrorString(status));
}

#define HIP(call) check_hip(call, #call)
#define COMPILER(call) check_compiler(call, #call)

/* Memory that is zero; one byte more than asked for, which ends a text. */
static char *allocate(size_t size)
{
    char *memory = (char *)calloc(size + 1, 1);
    if (memory == NULL)
        fail("calloc", strerror(errno));
    return memory;
}

static Data read_file(const char *path)
{
    Data data = {NULL, 0};
    FILE *file = fopen(path, "rb");
    long size;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
        fail(path, strerror(errno));
    data.size = (size_t)size;
    data.bytes = allocate(data.size);
    if (fread(data.bytes, 1, data.size, file) != data.size)
        fail(path, "cannot be read whole");
    fclose(file);
    return data;
}

static void write_file(const char *path, Data data)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fail(path, strerror(errno));
    if (fwrite(data.bytes, 1, data.size, file) != data.size || fclose(file) != 0)
        fail(path, "cannot be written whole");
}

static unsigned int number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value == 0 || value > 0x7FFFFFFF)
        fail(text, "is not a number of waves or lanes");
    return (unsigned int)value;
}

/* Machine code of HIP C++ for a processor. */
static Data compiled(const char *source, const char *processor)
{
    Data code = {NULL, 0};
    hiprtcProgram program;
    hiprtcResult status;
    char option[sizeof "--offload-arch=" + 256];
    const char *options[] = {option};
    snprintf(option, sizeof option, "--offload-arch=%s", processor);
    COMPILER(hiprtcCreateProgram(&program, source, "run.hip", 0, NULL, NULL));
    status = hiprtcCompileProgram(program, 1, options);
    if (status != HIPRTC_SUCCESS) {
        size_t size = 0;
        if (hiprtcGetProgramLogSize(program, &size) == HIPRTC_SUCCESS) {
            char *log = allocate(size);
            if (hiprtcGetProgramLog(program, log) == HIPRTC_SUCCESS)
                fprintf(stderr, "%s\n", log);
        }
        check_compiler(status, "hiprtcCompileProgram");
    }
    COMPILER(hiprtcGetCodeSize(program, &code.size));
    code.bytes = allocate(code.size);
    COMPILER(hiprtcGetCode(program, code.bytes));
    COMPILER(hiprtcDestroyProgram(&program));
    return code;
}

static void *uploaded(Data data)
{
    void *place = NULL;
    HIP(hipMalloc(&place, data.size));
    HIP(hipMemcpy(place, data.bytes, data.size, hipMemcpyHostToDevice));
    return place;
}

int main(int count, char **arguments)
{
    hipDeviceProp_t gpu;
    hipModule_t module;
    hipFunction_t kernel;
    Data operands[OPERANDS], code;
    void *places[OPERANDS], *given[OPERANDS];
    int each;

    HIP(hipSetDevice(DEVICE));
    HIP(hipGetDeviceProperties(&gpu, DEVICE));
    if (count == 1) {
        printf("%s\n%s\n", gpu.name, gpu.gcnArchName);
        return 0;
    }
    if (count != ARGUMENTS)
        fail(arguments[0], "takes no arguments, or SOURCE WAVES LANES A B C D");
    code = compiled(read_file(arguments[1]).bytes, gpu.gcnArchName);
    HIP(hipModuleLoadData(&module, code.bytes));
    HIP(hipModuleGetFunction(&kernel, module, "run"));
    for (each = 0; each < OPERANDS - 1; each++)
        operands[each] = read_file(arguments[4 + each]);
    operands[OPERANDS - 1].size = operands[OPERANDS - 2].size;
    operands[OPERANDS - 1].bytes = allocate(operands[OPERANDS - 1].size);
    for (each = 0; each < OPERANDS; each++) {
        places[each] = uploaded(operands[each]);
        given[each] = &places[each];
    }
    HIP(hipModuleLaunchKernel(kernel, number(arguments[2]), 1, 1, number(arguments[3]), 1, 1, 0, NULL, given, NULL));
    HIP(hipDeviceSynchronize());
    HIP(hipMemcpy(operands[OPERANDS - 1].bytes, places[OPERANDS - 1], operands[OPERANDS - 1].size, hipMemcpyDeviceToHost));
    write_file(arguments[7], operands[OPERANDS - 1]);
    for (each = 0; each < OPERANDS; each++)
        HIP(hipFree(places[each]));
    HIP(hipModuleUnload(module));
    return 0;
}
