/* The stand-in's machine and its errors: devices, versions, injected and sticky errors, faults. */
#define _GNU_SOURCE
#include "runtime.h"

#include <cuda.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/shim_control.h"

enum { NAMES_MAX = 96, TEXT_BYTES = 512, EXIT_FAULTS = 99 };

standin_world standin = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local cudaError_t last_error;
static _Thread_local int current_device;

typedef struct call_count {
    const char *name;
    uint64_t count;
} call_count;

/* What was injected, counted and found. */
static struct {
    call_count calls[NAMES_MAX];
    uint64_t call_count; /* of all */
    const char *name;    /* of the call that shall fail; NULL: any */
    uint64_t left;       /* calls until it; 0: none */
    cudaError_t error;
    bool breaks;        /* the context, for good */
    bool goes_on;       /* with every later call */
    const char *failed; /* the call it hit */
    uint64_t faults;
    char first_fault[TEXT_BYTES];
} ledger = {.failed = ""};

/* ---- the machine ---- */

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

standin_machine standin_default(void)
{
    standin_machine machine = {.device_count = 1,
                               .driver_version = 13000,
                               .runtime_version = CUDART_VERSION,
                               .major = 9,
                               .minor = 0,
                               .multiprocessor_count = 132,
                               .context_bytes = UINT64_C(32) << 20,
                               .has_wait_value = 1,
                               .stream_depth = 1024,
                               .stuck_ms = 5000,
                               .lockable_bytes = UINT64_MAX};
    machine.device_bytes = number_from("STANDIN_DEVICE_BYTES", UINT64_C(1) << 30);
    machine.image = (int)number_from("STANDIN_IMAGE", 0);
    machine.seed = number_from("STANDIN_SEED", 1);
    machine.delay_us = (uint32_t)number_from("STANDIN_DELAY_US", 200);
    return machine;
}

static void choose_machine(void)
{
    if (!standin.is_set)
        standin.machine = standin_default();
    standin.is_set = true;
}

void standin_reset(const standin_machine *machine)
{
    pthread_mutex_lock(&standin.lock);
    memset(&ledger, 0, sizeof ledger);
    ledger.failed = "";
    standin.machine = *machine;
    standin.is_set = true;
    standin.broken = cudaSuccess;
    standin.is_refusing = false;
    memset(standin.has_context, 0, sizeof standin.has_context);
    memset(standin.used_bytes, 0, sizeof standin.used_bytes);
    standin.late_loads = standin.deepest_stream = 0;
    standin_forget_code();
    order_reset();
    const standin_counts *live = &standin.live;
    if (live->allocations + live->streams + live->events + live->registrations > 0)
        standin_fault_locked("still live: %llu allocations, %llu streams, %llu events, "
                             "%llu registrations",
                             (unsigned long long)live->allocations,
                             (unsigned long long)live->streams, (unsigned long long)live->events,
                             (unsigned long long)live->registrations);
    pthread_mutex_unlock(&standin.lock);
}

standin_counts standin_live(void)
{
    pthread_mutex_lock(&standin.lock);
    standin_counts live = standin.live;
    pthread_mutex_unlock(&standin.lock);
    return live;
}

/* ---- faults ---- */

static void note_fault(const char *format, va_list arguments)
{
    if (ledger.faults++ == 0)
        vsnprintf(ledger.first_fault, sizeof ledger.first_fault, format, arguments);
}

void standin_fault_locked(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    note_fault(format, arguments);
    va_end(arguments);
}

void standin_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&standin.lock);
    note_fault(format, arguments);
    pthread_mutex_unlock(&standin.lock);
    va_end(arguments);
}

uint64_t standin_faults(const char **out_first)
{
    pthread_mutex_lock(&standin.lock);
    standin_check_registrations();
    const char *first_order;
    const uint64_t faults = ledger.faults, order_faults = standin_order_faults(&first_order);
    if (out_first)
        *out_first = faults > 0 ? ledger.first_fault : first_order;
    pthread_mutex_unlock(&standin.lock);
    return faults + order_faults;
}

static uint64_t read_locked(const uint64_t *number)
{
    pthread_mutex_lock(&standin.lock);
    const uint64_t value = *number;
    pthread_mutex_unlock(&standin.lock);
    return value;
}

uint64_t standin_late_loads(void)
{
    return read_locked(&standin.late_loads);
}

uint64_t standin_deepest_stream(void)
{
    return read_locked(&standin.deepest_stream);
}

/* A program that is run as a whole shows its faults by its exit code. */
__attribute__((destructor)) static void report_at_exit(void)
{
    const char *first;
    uint64_t faults = standin_faults(&first);
    if (faults == 0)
        return;
    fprintf(stderr, "standin: %llu faults, the first: %s\n", (unsigned long long)faults, first);
    fflush(NULL);
    _exit(EXIT_FAULTS);
}

/* ---- beginning and ending a call ---- */

static call_count *find_count(const char *name)
{
    for (int i = 0; i < NAMES_MAX; i++) {
        call_count *call = &ledger.calls[i];
        if (!call->name)
            call->name = name;
        if (strcmp(call->name, name) == 0)
            return call;
    }
    return &ledger.calls[NAMES_MAX - 1]; /* more kernels than places: they share one */
}

/* A call that makes order, or tells of it. */
static bool makes_order(const char *name)
{
    static const char *const parts[] = {"Synchronize", "Wait", "Record", "Query"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(name, parts[i]))
            return true;
    }
    return false;
}

/* The error that is injected into this call. */
static cudaError_t take_injection(const char *name)
{
    find_count(name)->count++;
    ledger.call_count++;
    if (standin.is_refusing)
        return ledger.error;
    if (ledger.left == 0 || (ledger.name && strcmp(ledger.name, name) != 0) || --ledger.left > 0)
        return cudaSuccess;
    ledger.failed = name;
    standin.is_refusing = ledger.goes_on;
    if (makes_order(name) || ledger.goes_on)
        order_stop();
    if (ledger.breaks && standin.broken == cudaSuccess) {
        standin.broken = ledger.error;
        pthread_cond_broadcast(&standin.changed);
    }
    return ledger.error;
}

/* Of what the machine lacks. */
static cudaError_t find_lack(void)
{
    if (standin.machine.driver_version < standin.machine.runtime_version)
        return cudaErrorInsufficientDriver;
    return standin.machine.device_count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

static _Thread_local bool has_called;

bool standin_has_called(void)
{
    const bool it_has = has_called;
    has_called = false;
    return it_has;
}

cudaError_t standin_enter(const char *name)
{
    has_called = has_called || !strstr(name, "Query");
    pthread_mutex_lock(&standin.lock);
    while (standin.is_full)
        pthread_cond_wait(&standin.changed, &standin.lock);
    choose_machine();
    cudaError_t injected = take_injection(name);
    if (standin.broken != cudaSuccess)
        return standin.broken;
    return injected != cudaSuccess ? injected : find_lack();
}

cudaError_t standin_leave(cudaError_t error)
{
    pthread_mutex_unlock(&standin.lock);
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void standin_break(int error)
{
    pthread_mutex_lock(&standin.lock);
    if (standin.broken == cudaSuccess)
        standin.broken = (cudaError_t)error;
    pthread_cond_broadcast(&standin.changed);
    pthread_mutex_unlock(&standin.lock);
}

static void inject(const char *name, uint64_t nth, int error, bool breaks, bool goes_on)
{
    pthread_mutex_lock(&standin.lock);
    ledger.name = name;
    ledger.left = nth;
    ledger.error = (cudaError_t)error;
    ledger.breaks = breaks;
    ledger.goes_on = goes_on;
    pthread_mutex_unlock(&standin.lock);
}

void standin_fail_call(const char *name, uint64_t nth, int error)
{
    inject(name, nth, error, false, false);
}

void standin_refuse_calls(const char *name, uint64_t nth, int error)
{
    inject(name, nth, error, false, true);
}

void standin_break_call(const char *name, uint64_t nth, int error)
{
    inject(name, nth, error, true, false);
}

uint64_t standin_calls(const char *name)
{
    pthread_mutex_lock(&standin.lock);
    uint64_t count = name ? find_count(name)->count : ledger.call_count;
    pthread_mutex_unlock(&standin.lock);
    return count;
}

const char *standin_failed_call(void)
{
    pthread_mutex_lock(&standin.lock);
    const char *failed = ledger.failed;
    pthread_mutex_unlock(&standin.lock);
    return failed;
}

static cudaError_t read_last_error(bool is_cleared)
{
    pthread_mutex_lock(&standin.lock);
    cudaError_t error = standin.broken != cudaSuccess ? standin.broken : last_error;
    pthread_mutex_unlock(&standin.lock);
    if (is_cleared)
        last_error = cudaSuccess;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    return read_last_error(true);
}

cudaError_t cudaPeekAtLastError(void)
{
    return read_last_error(false);
}

#define ERRORS(X)                                                                                  \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInitializationError, "initialization error")                                        \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable")            \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device") \
    X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                            \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorSymbolNotFound, "named symbol not found")                                           \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                    \
    X(cudaErrorHostMemoryAlreadyRegistered,                                                        \
      "part or all of the requested memory range is already mapped")                               \
    X(cudaErrorHostMemoryNotRegistered,                                                            \
      "pointer does not correspond to a registered memory region")                                 \
    X(cudaErrorMisalignedAddress, "misaligned address")                                            \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                        \
    X(cudaErrorNotPermitted, "operation not permitted")                                            \
    X(cudaErrorNotSupported, "operation not supported")                                            \
    X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorString(cudaError_t error)
{
#define X(value, text)                                                                             \
    if (error == value)                                                                            \
        return text;
    ERRORS(X)
#undef X
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
#define X(value, text)                                                                             \
    if (error == value)                                                                            \
        return #value;
    ERRORS(X)
#undef X
    return "unrecognized error code";
}

/* ---- devices ---- */

static cudaError_t check_device(int device)
{
    return device < 0 || device >= standin.machine.device_count ? cudaErrorInvalidDevice
                                                                : cudaSuccess;
}

static void make_context(int device)
{
    if (standin.has_context[device])
        return;
    standin.has_context[device] = true;
    standin.used_bytes[device] += standin.machine.context_bytes;
}

int standin_device(void)
{
    make_context(current_device);
    return current_device;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = standin_enter("cudaGetDeviceCount");
    *count = error == cudaSuccess ? standin.machine.device_count : 0;
    return standin_leave(error);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = standin_enter("cudaSetDevice");
    if (error == cudaSuccess)
        error = check_device(device);
    if (error == cudaSuccess) {
        current_device = device;
        make_context(device);
    }
    return standin_leave(error);
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t error = standin_enter("cudaGetDevice");
    *device = current_device;
    return standin_leave(error);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    (void)flags;
    return standin_leave(standin_enter("cudaSetDeviceFlags"));
}

static CUuuid standin_uuid(int device)
{
    CUuuid uuid = {"stand-in GPU"};
    uuid.bytes[sizeof uuid.bytes - 1] = (char)device;
    return uuid;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    cudaError_t error = standin_enter("cuDeviceGetUuid");
    if (error == cudaSuccess)
        error = check_device(device);
    if (error == cudaSuccess)
        *uuid = standin_uuid(device);
    pthread_mutex_unlock(&standin.lock);
    return (CUresult)error;
}

int standin_image(void)
{
    pthread_mutex_lock(&standin.lock);
    choose_machine();
    const standin_machine *it = &standin.machine;
    const int image = it->image != 0 ? it->image : 10 * it->major + it->minor;
    pthread_mutex_unlock(&standin.lock);
    return image;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t error = standin_enter("cudaGetDeviceProperties");
    if (error == cudaSuccess)
        error = check_device(device);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "Stand-in %d",
             standin.machine.has_one_kind ? 0 : device);
    prop->totalGlobalMem = standin.machine.device_bytes;
    memcpy(prop->uuid.bytes, standin_uuid(device).bytes, sizeof prop->uuid.bytes);
    prop->major = standin.machine.major;
    prop->minor = standin.machine.minor;
    prop->multiProcessorCount = standin.machine.multiprocessor_count;
    return standin_leave(error);
}

static int attribute_of(enum cudaDeviceAttr attribute)
{
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 48 << 10;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMultiProcessorCount:
        return standin.machine.multiprocessor_count;
    case cudaDevAttrL2CacheSize:
        return 50 << 20;
    case cudaDevAttrComputeCapabilityMajor:
        return standin.machine.major;
    case cudaDevAttrComputeCapabilityMinor:
        return standin.machine.minor;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return 228 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return 227 << 10;
    }
    return 0;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    cudaError_t error = standin_enter("cudaDeviceGetAttribute");
    if (error == cudaSuccess)
        error = check_device(device);
    *value = attribute_of(attr);
    return standin_leave(error);
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    cudaError_t error = standin_enter("cudaDeviceGetPCIBusId");
    if (error == cudaSuccess)
        error = check_device(device);
    snprintf(pciBusId, (size_t)len, "FFFF:%02X:00.0", device & 0xff);
    return standin_leave(error);
}

/* The two versions can be asked for without a driver. */
static cudaError_t report_version(const char *name, const int *version, int *out_version)
{
    cudaError_t error = standin_enter(name);
    *out_version = *version;
    return standin_leave(
        error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ? cudaSuccess : error);
}

cudaError_t cudaDriverGetVersion(int *driverVersion)
{
    return report_version("cudaDriverGetVersion", &standin.machine.driver_version, driverVersion);
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
    return report_version("cudaRuntimeGetVersion", &standin.machine.runtime_version,
                          runtimeVersion);
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    cudaError_t error = standin_enter("cudaFuncSetAttribute");
    const bool asks_shared = attr == cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (error == cudaSuccess && asks_shared &&
        (value < 0 || value > attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && asks_shared)
        sl_shim_allow_shared(func, (size_t)value);
    return standin_leave(error);
}
