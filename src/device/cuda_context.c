/* Finds a GPU, makes its context, and reads the properties of both. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

enum { OLDEST_CAPABILITY = 80, BUS_ID_BYTES = 32, DEVICES_MAX = 64 };

/* Bytes that each context took at its creation. Kernel code, handles and events are allocated
 * later, from the memory that a plan leaves free. A context outlives the sl_device that created it:
 * the next one to open finds the context there. Shared by all devices of the process. */
static _Atomic uint64_t context_bytes[DEVICES_MAX];

/* ---- which device ---- */

/* "13.0" of 13000. */
typedef struct version_text {
    char text[16];
} version_text;

static version_text print_version(int version)
{
    version_text text;
    snprintf(text.text, sizeof text.text, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

static sl_status explain_driver(void)
{
    int driver = 0, runtime = 0;
    SL_CUDA_TRY(NULL, cudaDriverGetVersion(&driver));
    SL_CUDA_TRY(NULL, cudaRuntimeGetVersion(&runtime));
    if (driver == 0)
        SL_FAIL(SL_ERROR_SYSTEM, "there is no NVIDIA driver on this machine: use --device cpu, or "
                                 "install an " SL_CUDA_DRIVER);
    SL_FAIL(SL_ERROR_SYSTEM,
            "the NVIDIA driver is too old: it knows CUDA %s, and this build, with CUDA %s, needs "
            "an " SL_CUDA_DRIVER ". Install one, or build with an older CUDA toolkit (12: R525)",
            print_version(driver).text, print_version(runtime).text);
}

static sl_status count_devices(int *out_count)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver) {
        sl_cuda_forget_error();
        return explain_driver();
    }
    if (error != cudaSuccess && error != cudaErrorNoDevice)
        return sl_cuda_fail(error, "cudaGetDeviceCount", NULL);
    if (error != cudaSuccess || count == 0) {
        sl_cuda_forget_error();
        SL_FAIL(SL_ERROR_SYSTEM, "there is an NVIDIA driver, but no GPU that it shows (is "
                                 "CUDA_VISIBLE_DEVICES set?): use --device cpu");
    }
    *out_count = count;
    return SL_OK;
}

static sl_status check_index(int index)
{
    int count = 0;
    SL_TRY(count_devices(&count));
    if (index >= 0 && index < count)
        return SL_OK;
    if (count == 1)
        SL_FAIL(SL_ERROR_SYSTEM, "there is no cuda device %d, only 0", index);
    SL_FAIL(SL_ERROR_SYSTEM, "there is no cuda device %d, only 0 to %d", index, count - 1);
}

static sl_status check_capability(int index, struct cudaDeviceProp *out_properties)
{
    SL_CUDA_TRY(NULL, cudaGetDeviceProperties(out_properties, index));
    if (out_properties->major * 10 + out_properties->minor < OLDEST_CAPABILITY)
        SL_FAIL(SL_ERROR_SYSTEM,
                "cuda device %d (%s) has compute capability %d.%d; sluice needs 8.0 or newer",
                index, out_properties->name, out_properties->major, out_properties->minor);
    return SL_OK;
}

/* ---- free bytes of a GPU for the whole machine, by its bus id: NVML ----
 *
 * CUDA can report them only after it has taken its own memory. The NVML library comes with the
 * driver and is opened by name. Without the library the free bytes are unknown, and also on a GPU
 * that is divided into instances (MIG), because a bus id names the whole GPU while CUDA uses one
 * instance. These are the prototypes of NVML that are used here.
 */

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus_id, void **out_device);
    int (*memory)(void *device, nvml_memory *out_memory);
    int (*mig_mode)(void *device, unsigned *out_current, unsigned *out_pending);
} nvml;

/* Writes a function pointer: dlsym returns pointers to objects. */
static bool find_symbol(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);
    memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool open_nvml(nvml *out_nvml)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    out_nvml->library = library;
    if (find_symbol(library, "nvmlInit_v2", &out_nvml->init) &&
        find_symbol(library, "nvmlShutdown", &out_nvml->shutdown) &&
        find_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", &out_nvml->find) &&
        find_symbol(library, "nvmlDeviceGetMemoryInfo", &out_nvml->memory) &&
        find_symbol(library, "nvmlDeviceGetMigMode", &out_nvml->mig_mode) && out_nvml->init() == 0)
        return true;
    dlclose(library);
    return false;
}

/* NVML returns an error for a GPU that cannot be divided. */
static bool is_divided(const nvml *library, void *device)
{
    unsigned current = 0, pending = 0;
    return library->mig_mode(device, &current, &pending) == 0 && current != 0;
}

/* The free bytes; 0: unknown. */
static uint64_t read_free_bytes(const char *bus_id)
{
    nvml library;
    void *device = NULL;
    nvml_memory memory = {0};
    if (!open_nvml(&library))
        return 0;
    if (library.find(bus_id, &device) != 0 || is_divided(&library, device) ||
        library.memory(device, &memory) != 0)
        memory.free = 0;
    library.shutdown();
    dlclose(library.library);
    return memory.free;
}

/* ---- properties ---- */

/* The NUMA node; -1: unknown, as the system writes it. */
static int read_numa_node(const char *bus_id)
{
    char path[96], name[BUS_ID_BYTES];
    size_t length = strlen(bus_id);
    int node = -1;
    for (size_t i = 0; i <= length; i++)
        name[i] = (char)tolower((unsigned char)bus_id[i]);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", name);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    char *end = path;
    if (fgets(path, sizeof path, file))
        node = (int)strtol(path, &end, 10);
    if (end == path)
        node = -1;
    fclose(file);
    return node;
}

static void format_uuid(const char bytes[16], char out_text[40])
{
    const unsigned char *b = (const unsigned char *)bytes;
    snprintf(out_text, 40, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

static cudaError_t find_uuid_call(void **out_function, enum cudaDriverEntryPointQueryResult *found)
{
#if CUDART_VERSION >= 12050
    return cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", out_function, 11040,
                                            cudaEnableDefault, found);
#else
    return cudaGetDriverEntryPoint("cuDeviceGetUuid", out_function, cudaEnableDefault, found);
#endif
}

/* Since CUDA 11.4 the driver's call gives the UUID of the MIG instance that is used; the runtime's
 * property may be that of the whole GPU, which stands where the driver does not answer. */
static void fill_uuid(int index, const struct cudaDeviceProp *properties, char out_text[40])
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    CUresult (*get)(CUuuid *, CUdevice) = NULL;
    void *function = NULL;
    CUuuid uuid = {{0}};
    const cudaError_t error = find_uuid_call(&function, &found);
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess)
        memcpy(&get, &function, sizeof get);
    if (get != NULL && get(&uuid, index) == CUDA_SUCCESS)
        format_uuid(uuid.bytes, out_text);
    else
        format_uuid(properties->uuid.bytes, out_text);
    if (error != cudaSuccess)
        sl_cuda_forget_error();
}

static sl_status fill_info(int index, const struct cudaDeviceProp *properties,
                           sl_device_info *out_info)
{
    int driver = 0, runtime = 0;
    SL_CUDA_TRY(NULL, cudaDriverGetVersion(&driver));
    SL_CUDA_TRY(NULL, cudaRuntimeGetVersion(&runtime));
    snprintf(out_info->name, sizeof out_info->name, "%.127s", properties->name);
    snprintf(out_info->detail, sizeof out_info->detail,
             "sm_%d%d, %d multiprocessors, driver %s, runtime %s", properties->major,
             properties->minor, properties->multiProcessorCount, print_version(driver).text,
             print_version(runtime).text);
    out_info->multiprocessor_count = (uint32_t)properties->multiProcessorCount;
    fill_uuid(index, properties, out_info->uuid);
    out_info->overhead_bytes = index < DEVICES_MAX ? atomic_load(&context_bytes[index]) : 0;
    return SL_OK;
}

/* ---- making the context ---- */

/* Waiting threads sleep, because the host lane needs the cores. */
static sl_status make_context(int index, uint64_t free_before)
{
    size_t free_bytes = 0, total_bytes = 0;
    SL_CUDA_TRY(NULL, cudaSetDevice(index));
    SL_CUDA_TRY(NULL, cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    SL_CUDA_TRY(NULL, cudaFree(NULL));
    SL_CUDA_TRY(NULL, cudaMemGetInfo(&free_bytes, &total_bytes));
    uint64_t unknown = 0;
    uint64_t taken = free_before > free_bytes ? free_before - free_bytes : 0;
    if (index < DEVICES_MAX)
        (void)atomic_compare_exchange_strong(&context_bytes[index], &unknown, taken);
    return SL_OK;
}

sl_status sl_cuda_context_open(int index, sl_device_info *out_info)
{
    char bus_id[BUS_ID_BYTES] = "";
    struct cudaDeviceProp properties;
    sl_device_info info = {0};
    SL_TRY(check_index(index));
    SL_TRY(check_capability(index, &properties));
    SL_CUDA_TRY(NULL, cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index));
    SL_TRY(make_context(index, read_free_bytes(bus_id)));
    SL_TRY(fill_info(index, &properties, &info));
    info.numa_node = read_numa_node(bus_id);
    *out_info = info;
    return SL_OK;
}
