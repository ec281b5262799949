/* What is known of the answers of a GPU: the record of its self-test (src/selftest).
 *
 * A record belongs to a GPU or its MIG instance, the driver, CUDA, cuBLASLt, the options --cuda-...
 * and the build. Its file lies beside the machine profile (profile.h), as self-test-UUID.json, with
 * the options behind the UUID where they are not the defaults. It is replaced in one step. A record
 * of another driver, library or build counts for nothing, and the next test replaces it.
 */
#ifndef SL_MACHINE_PROOF_RECORD_H
#define SL_MACHINE_PROOF_RECORD_H

#include "base/hash.h"
#include "device/device.h"

/* X(NAME, name): the parts of a self-test, in their order (selftest/selftest.h). */
#define SL_PROOF_LIST(X)                                                                           \
    X(IMAGE, image)                                                                                \
    X(ORDER, order)                                                                                \
    X(COPIES, copies)                                                                              \
    X(KERNELS, kernels)                                                                            \
    X(REPEATS, repeats)                                                                            \
    X(PRODUCTS, products)                                                                          \
    X(PLACEMENTS, placements)                                                                      \
    X(REACH, reach)

typedef enum sl_proof_kind {
#define X(NAME, name) SL_PROOF_##NAME,
    SL_PROOF_LIST(X)
#undef X
        SL_PROOF_PARTS
} sl_proof_kind;

typedef enum sl_proof_outcome {
    SL_PROOF_NOT_TESTED,
    SL_PROOF_PASSED,
    SL_PROOF_FAILED
} sl_proof_outcome;

enum { SL_PROOF_TEXT_BYTES = 320, SL_PROOF_DOUBT_BYTES = 640 };

typedef struct sl_proof_part {
    sl_proof_outcome outcome;
    char text[SL_PROOF_TEXT_BYTES]; /* what was found, or why it was not tested, or how much was */
    double seconds;
    uint32_t done; /* steps of the part that passed: the next test goes on behind them */
} sl_proof_part;

typedef struct sl_proof_record {
    char uuid[40];     /* "": the GPU is not known, and nothing is kept */
    char gpu[256];     /* name, architecture, driver, CUDA */
    char kernels[256]; /* what sl_kernel_table.description says: cuBLASLt with its version */
    char options[48];  /* "", "-own", "-no-epilogue", ... */
    char build[96];
    char date[32]; /* ISO 8601, UTC */
    sl_proof_part parts[SL_PROOF_PARTS];
} sl_proof_record;

/* The same of what the GPUs of ranks exchange over NCCL (session/exchange_proof.h): one file for
 * each list of GPUs, self-test-nccl-HASH.json. */
typedef struct sl_exchange_record {
    char gpus[40]; /* hash of the layout and the UUIDs by rank; "": unknown, and nothing is kept */
    char gpu[256]; /* the first rank's: name, architecture, driver, CUDA */
    char nccl[32]; /* "NCCL 2.21.5" */
    char build[96];
    char date[32]; /* ISO 8601, UTC */
    sl_proof_part part;
} sl_exchange_record;

/* "image", ...; valid for ever. */
const char *sl_proof_part_name(sl_proof_kind kind);

/* Fills in whose record it is; no part is tested. `options` NULL: the defaults. */
void sl_proof_record_init(const sl_device_info *info, const sl_cuda_options *options,
                          sl_proof_record *out_record);

/* Takes over the parts from the record's file, if there is one and it is of the same GPU, driver,
 * libraries, options and build; else changes nothing. */
void sl_proof_record_find(sl_proof_record *record);

/* Writes the file in one step. SL_ERROR_MISSING: there is no place; SL_ERROR_IO. */
sl_status sl_proof_record_save(sl_proof_record *record);

/* The same of a record of exchanges. `gpus` NULL: a UUID is unknown; `version` as NCCL tells it. */
void sl_exchange_record_init(const sl_device_info *info, const sl_hash_value *gpus, int version,
                             sl_exchange_record *out_record);
void sl_exchange_record_find(sl_exchange_record *record);
sl_status sl_exchange_record_save(sl_exchange_record *record);

/* The first part that failed; NULL: none. */
const sl_proof_part *sl_proof_record_failure(const sl_proof_record *record,
                                             sl_proof_kind *out_kind);

/* Why answers of a GPU are doubted, and what removes the doubt, as one line; "": no part failed,
 * and KERNELS has passed. */
void sl_proof_record_doubt(const sl_device_info *info, const sl_cuda_options *options,
                           char out_text[SL_PROOF_DOUBT_BYTES]);

/* True if all parts that a run asks for have passed: all but REACH. */
bool sl_proof_record_is_whole(const sl_proof_record *record);

#endif
