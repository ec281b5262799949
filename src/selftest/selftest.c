#include "selftest.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/workers.h"
#include "placements.h"
#include "products.h"
#include "programs.h"
#include "reach.h"
#include "transfers.h"

static const double nanosecond = 1e-9, second = 1e9;

enum { CPU_WORKERS_MOST = 8, SEED = 7 };

typedef struct selftest {
    const sl_selftest_args *args;
    sl_timed_device *cpu, *device;
    uint64_t end_ns;
    bool has_failed; /* a part of this call */
    bool is_stuck;
} selftest;

sl_selftest_args sl_selftest_defaults(sl_device_kind kind, int index)
{
    const bool is_gpu = kind == SL_DEVICE_CUDA;
    return (sl_selftest_args){.kind = kind,
                              .index = index,
                              .host_bytes = is_gpu ? (UINT64_C(21) << 30) / 10 : 8 << 20,
                              .border_bytes = is_gpu ? UINT64_C(1) << 30 : 1 << 20,
                              .seconds = 20,
                              .patience = 60,
                              .rounds = is_gpu ? 1000 : 50,
                              .repeats = is_gpu ? 10 : 2,
                              .is_small = !is_gpu};
}

static double seconds_since(uint64_t start_ns)
{
    return nanosecond * (double)(sl_clock_now_ns() - start_ns);
}

static bool is_late(const selftest *self)
{
    return sl_clock_now_ns() > self->end_ns;
}

static const char out_of_time[] = "there was no time left";

/* ---- the parts: each writes a fault, or what it did ---- */

/* Nothing says where code was translated that it is wrong; but another compiler made it than the
 * one whose code was looked at. */
static sl_status prove_image(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    sl_kernel_image image;
    if (!self->device->kernels->image) {
        snprintf(part->text, sizeof part->text, "the code of this program");
        return SL_OK;
    }
    SL_TRY(self->device->kernels->image(&image));
    if (image.code / 10 != image.device / 10 || image.code > image.device)
        snprintf(fault->text, sizeof fault->text,
                 "the driver loaded code for sm_%" PRIu32 " on a GPU of sm_%" PRIu32, image.code,
                 image.device);
    snprintf(part->text, sizeof part->text, "code for sm_%" PRIu32 "%s", image.code,
             image.is_built ? ", as this build has it"
                            : ", which the driver translated: build with "
                              "-DSL_CUDA_ARCHITECTURES for this GPU");
    return SL_OK;
}

static sl_status prove_order(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    const sl_order_args args = {self->device, self->args->rounds, self->end_ns};
    uint32_t rounds = 0;
    SL_TRY(sl_transfers_prove_order(&args, fault, &rounds));
    if (rounds < args.rounds)
        part->outcome = SL_PROOF_NOT_TESTED;
    snprintf(part->text, sizeof part->text,
             "%" PRIu32 " rounds of host thread, copy, kernel and copy under load%s%s", rounds,
             rounds < args.rounds ? ", then " : "", rounds < args.rounds ? out_of_time : "");
    return SL_OK;
}

static sl_status prove_copies(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    uint64_t free_bytes = 0;
    const uint64_t bytes = self->args->host_bytes;
    SL_TRY(sl_device_host_free_bytes(&free_bytes));
    if (bytes > free_bytes / 2) {
        part->outcome = SL_PROOF_NOT_TESTED;
        snprintf(part->text, sizeof part->text,
                 "%" PRIu64 " MiB of host memory are wanted, which is more than half of what is "
                 "free",
                 bytes >> 20);
        return SL_OK;
    }
    snprintf(part->text, sizeof part->text, "across each border in %" PRIu64 " MiB of host memory",
             bytes >> 20);
    return sl_transfers_prove_borders(self->device, bytes, self->args->border_bytes, fault);
}

/* *out_ops 0: a large program where only small ones are wanted. */
static sl_status prove_program(selftest *self, uint32_t index, uint32_t repeats, sl_fault *fault,
                               uint64_t *out_ops)
{
    sl_proof_program it;
    sl_status status = sl_proof_program_open(index, &it);
    const sl_lockstep_args args = {.cpu = self->cpu,
                                   .device = self->device,
                                   .program = it.program,
                                   .layout = it.layout,
                                   .vocab = it.vocab,
                                   .seed = SEED,
                                   .repeats = repeats,
                                   .end_ns = self->end_ns};
    const bool is_wanted = !it.is_large || (repeats == 0 && !self->args->is_small);
    *out_ops = 0;
    if (status == SL_OK && is_wanted)
        status = sl_lockstep_run(&args, fault, out_ops);
    sl_proof_program_close(&it);
    return status;
}

/* From program part->done on, whose number it moves on. */
static sl_status prove_programs(selftest *self, uint32_t count, uint32_t repeats, sl_fault *fault,
                                sl_proof_part *part)
{
    uint64_t ops = 0, more = 0;
    const uint32_t first = part->done;
    while (part->done < count && !*fault->text && !is_late(self)) {
        SL_TRY(prove_program(self, part->done, repeats, fault, &more));
        ops += more;
        part->done += !is_late(self) && !*fault->text;
    }
    if (part->done < count)
        part->outcome = SL_PROOF_NOT_TESTED;
    snprintf(part->text, sizeof part->text, "%" PRIu64 " ops %s, programs %u to %u of %u%s%s%s",
             ops, repeats > 0 ? "again and again while copies run" : "beside the cpu", first + 1,
             part->done, count, self->args->is_small ? ", small ones" : "",
             part->done < count ? "; then " : "", part->done < count ? out_of_time : "");
    return SL_OK;
}

static sl_status prove_kernels(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    return prove_programs(self, sl_proof_program_count(), 0, fault, part);
}

/* Where all is slow, the first program. */
static sl_status prove_repeats(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    const uint32_t count = self->args->is_small ? 1 : sl_proof_program_count();
    return prove_programs(self, count, self->args->repeats, fault, part);
}

static sl_status prove_products(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    const sl_products_args args = {self->device, self->args->repeats, self->end_ns};
    uint64_t products = 0;
    SL_TRY(sl_products_prove(&args, fault, &products));
    if (is_late(self))
        part->outcome = SL_PROOF_NOT_TESTED;
    snprintf(part->text, sizeof part->text, "%" PRIu64 " products on two streams at once%s%s",
             products, is_late(self) ? "; then " : "", is_late(self) ? out_of_time : "");
    return SL_OK;
}

static sl_status prove_placements(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    const char *disk = self->args->disk_directory;
    snprintf(part->text, sizeof part->text, "two steps on the device and on the host%s",
             disk ? ", and on disk" : "");
    return sl_placements_prove(self->args->kind, self->args->index, disk, fault);
}

static sl_status prove_reach(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    const uint64_t elements = self->args->reach_elements, bytes = sl_reach_bytes(elements);
    uint64_t free_bytes = self->device->info.free_bytes;
    if (self->args->kind == SL_DEVICE_CPU)
        SL_TRY(sl_device_host_free_bytes(&free_bytes));
    if (elements == 0 || bytes > free_bytes / 2) {
        part->outcome = SL_PROOF_NOT_TESTED;
        snprintf(part->text, sizeof part->text,
                 elements == 0 ? "doctor --self-test asks for it"
                               : "%" PRIu64 " MiB are wanted, which is more than half of what is "
                                 "free",
                 bytes >> 20);
        return SL_OK;
    }
    snprintf(part->text, sizeof part->text, "the last rows of a table of %" PRIu64 " elements",
             elements);
    return sl_reach_prove(self->device, elements, fault);
}

/* ---- all ---- */

/* What is no answer of the device: too little memory, or a directory that cannot serve. */
static bool is_untested(sl_status status)
{
    return status == SL_ERROR_FIT || status == SL_ERROR_USAGE || status == SL_ERROR_MISSING ||
           status == SL_ERROR_IO;
}

typedef sl_status (*prover)(selftest *self, sl_fault *fault, sl_proof_part *part);

static const prover provers[SL_PROOF_PARTS] = {
    [SL_PROOF_IMAGE] = prove_image,           [SL_PROOF_ORDER] = prove_order,
    [SL_PROOF_COPIES] = prove_copies,         [SL_PROOF_KERNELS] = prove_kernels,
    [SL_PROOF_REPEATS] = prove_repeats,       [SL_PROOF_PRODUCTS] = prove_products,
    [SL_PROOF_PLACEMENTS] = prove_placements, [SL_PROOF_REACH] = prove_reach};

static void leave_out(sl_proof_part *part, const char *why)
{
    part->outcome = SL_PROOF_NOT_TESTED;
    part->seconds = 0;
    snprintf(part->text, sizeof part->text, "%s", why);
}

static void run_part(selftest *self, sl_proof_kind kind, sl_proof_part *part)
{
    sl_fault fault = {0};
    const uint64_t start_ns = sl_clock_now_ns();
    part->outcome = SL_PROOF_PASSED;
    const sl_status status = provers[kind](self, &fault, part);
    part->seconds = seconds_since(start_ns);
    if (status == SL_OK && !*fault.text)
        return;
    part->outcome = is_untested(status) ? SL_PROOF_NOT_TESTED : SL_PROOF_FAILED;
    snprintf(part->text, sizeof part->text, "%s", *fault.text ? fault.text : sl_status_message());
}

/* A part that has passed stays as it is. Behind a fault other parts still tell more; behind work
 * that does not end none can run. */
static void prove(selftest *self, sl_proof_kind kind, sl_proof_part *part)
{
    if (part->outcome == SL_PROOF_PASSED)
        return;
    if (self->is_stuck)
        leave_out(part, "the device does not answer");
    else if (self->has_failed && self->args->ends_at_fault)
        leave_out(part, "another part has failed");
    else if (is_late(self))
        leave_out(part, out_of_time);
    else
        run_part(self, kind, part);
    self->has_failed |= part->outcome == SL_PROOF_FAILED;
    self->is_stuck |= self->device && self->device->is_stuck;
}

static sl_status open_devices(selftest *self)
{
    const sl_selftest_args *args = self->args;
    const uint32_t cores = sl_workers_usable_cpu_count();
    const uint32_t workers = cores < CPU_WORKERS_MOST ? cores : CPU_WORKERS_MOST;
    SL_TRY(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, workers, &self->cpu));
    SL_TRY(sl_timed_device_open(args->kind, args->index, args->cuda,
                                args->kind == SL_DEVICE_CPU ? workers : 1, &self->device));
    self->device->give_up_ns = self->end_ns + (uint64_t)(second * args->patience);
    return SL_OK;
}

static void close_devices(selftest *self)
{
    sl_timed_device_close(self->device);
    sl_timed_device_close(self->cpu);
    self->device = self->cpu = NULL;
}

sl_status sl_selftest_run(const sl_selftest_args *args, sl_proof_part parts[SL_PROOF_PARTS])
{
    selftest self = {.args = args,
                     .end_ns = sl_clock_now_ns() + (uint64_t)(second * args->seconds)};
    sl_status status = open_devices(&self);
    for (int i = 0; i < SL_PROOF_PLACEMENTS && status == SL_OK; i++)
        prove(&self, (sl_proof_kind)i, &parts[i]);
    if (status == SL_OK)
        prove(&self, SL_PROOF_REACH, &parts[SL_PROOF_REACH]);
    close_devices(&self); /* a session opens the device by itself */
    SL_TRY(status);
    prove(&self, SL_PROOF_PLACEMENTS, &parts[SL_PROOF_PLACEMENTS]);
    return SL_OK;
}
