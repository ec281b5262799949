#include "selftest.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "placements.h"
#include "programs.h"
#include "transfers.h"

static const double nanosecond = 1e-9;

enum { ROUNDS = 1000, FEW_ROUNDS = 50, CPU_WORKERS = 2, SEED = 7 };

typedef struct selftest {
    const sl_selftest_args *args;
    sl_timed_device *cpu, *device;
} selftest;

sl_selftest_args sl_selftest_defaults(sl_device_kind kind, int index)
{
    const bool is_gpu = kind == SL_DEVICE_CUDA;
    return (sl_selftest_args){.kind = kind,
                              .index = index,
                              .host_bytes = is_gpu ? (UINT64_C(21) << 30) / 10 : 8 << 20,
                              .border_bytes = is_gpu ? UINT64_C(1) << 30 : 1 << 20,
                              .seconds = 10,
                              .is_small = !is_gpu};
}

static double seconds_since(uint64_t start_ns)
{
    return nanosecond * (double)(sl_clock_now_ns() - start_ns);
}

/* ---- the parts: each writes a fault, or what it did ---- */

static sl_status prove_order(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    const uint32_t rounds = self->args->is_small ? FEW_ROUNDS : ROUNDS;
    snprintf(part->text, sizeof part->text, "%u rounds of copy, kernel and copy on three streams",
             rounds);
    return sl_transfers_prove_order(self->device, rounds, fault);
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
static sl_status prove_program(selftest *self, uint32_t index, sl_fault *fault, uint64_t *out_ops)
{
    sl_proof_program it;
    sl_status status = sl_proof_program_open(index, &it);
    const sl_lockstep_args args = {.cpu = self->cpu,
                                   .device = self->device,
                                   .program = it.program,
                                   .layout = it.layout,
                                   .vocab = it.vocab,
                                   .seed = SEED};
    *out_ops = 0;
    if (status == SL_OK && !(self->args->is_small && it.is_large))
        status = sl_lockstep_run(&args, fault, out_ops);
    sl_proof_program_close(&it);
    return status;
}

static sl_status prove_kernels(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    uint64_t ops = 0, more = 0;
    uint32_t index = 0, run_count = 0;
    const uint32_t count = sl_proof_program_count();
    const uint64_t start_ns = sl_clock_now_ns();
    for (; index < count && !*fault->text; index++) {
        if (seconds_since(start_ns) > self->args->seconds)
            break;
        SL_TRY(prove_program(self, index, fault, &more));
        ops += more;
        run_count += more > 0;
    }
    snprintf(part->text, sizeof part->text,
             "%" PRIu64 " ops beside the cpu, of %u of %u programs%s", ops, run_count, count,
             index < count          ? ": there was no time for the others"
             : self->args->is_small ? ": those of small sizes"
                                    : "");
    return SL_OK;
}

static sl_status prove_placements(selftest *self, sl_fault *fault, sl_proof_part *part)
{
    const char *disk = self->args->disk_directory;
    snprintf(part->text, sizeof part->text, "two steps on the device and on the host%s",
             disk ? ", and on disk" : "");
    return sl_placements_prove(self->args->kind, self->args->index, disk, fault);
}

/* ---- all ---- */

/* What is no answer of the device: too little memory, or a directory that cannot serve. */
static bool is_untested(sl_status status)
{
    return status == SL_ERROR_FIT || status == SL_ERROR_USAGE || status == SL_ERROR_MISSING ||
           status == SL_ERROR_IO;
}

typedef sl_status (*prover)(selftest *self, sl_fault *fault, sl_proof_part *part);

static void prove(selftest *self, const char *name, prover run, sl_proof_part *out_part)
{
    sl_fault fault = {0};
    const uint64_t start_ns = sl_clock_now_ns();
    *out_part = (sl_proof_part){.name = name, .outcome = SL_PROOF_PASSED};
    const sl_status status = run(self, &fault, out_part);
    out_part->seconds = seconds_since(start_ns);
    if (status == SL_OK && !*fault.text)
        return;
    out_part->outcome = is_untested(status) ? SL_PROOF_NOT_TESTED : SL_PROOF_FAILED;
    snprintf(out_part->text, sizeof out_part->text, "%s",
             *fault.text ? fault.text : sl_status_message());
}

static sl_status open_devices(selftest *self)
{
    const sl_selftest_args *args = self->args;
    SL_TRY(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, CPU_WORKERS, &self->cpu));
    return sl_timed_device_open(args->kind, args->index, args->cuda,
                                args->kind == SL_DEVICE_CPU ? CPU_WORKERS : 1, &self->device);
}

static void close_devices(selftest *self)
{
    sl_timed_device_close(self->device);
    sl_timed_device_close(self->cpu);
    self->device = self->cpu = NULL;
}

sl_status sl_selftest_run(const sl_selftest_args *args, sl_proof_part out_parts[SL_PROOF_PARTS])
{
    selftest self = {.args = args};
    sl_status status = open_devices(&self);
    if (status == SL_OK) {
        prove(&self, "order", prove_order, &out_parts[0]);
        prove(&self, "copies", prove_copies, &out_parts[1]);
        prove(&self, "kernels", prove_kernels, &out_parts[2]);
    }
    close_devices(&self); /* a session opens the device by itself */
    SL_TRY(status);
    prove(&self, "placements", prove_placements, &out_parts[3]);
    return SL_OK;
}

bool sl_selftest_has_passed(const sl_proof_part parts[SL_PROOF_PARTS])
{
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        if (parts[i].outcome == SL_PROOF_FAILED)
            return false;
    return true;
}
