/* A kernel, decoded: a flat list of ops over offsets. */
#ifndef PTX_KERNEL_H
#define PTX_KERNEL_H

#include <pthread.h>

#include "arithmetic.h"
#include "text.h"

/* What core itself does with an instruction; all others are PTX_OP_ARITHMETIC. */
typedef enum ptx_op_kind {
    PTX_OP_ARITHMETIC,
    PTX_OP_MOVE,
    PTX_OP_PACK,            /* one register of several */
    PTX_OP_UNPACK,          /* several of one */
    PTX_OP_CONVERT_ADDRESS, /* cvta: adds displacement[0] */
    PTX_OP_LOAD,            /* from[0]: address */
    PTX_OP_STORE,           /* from[0]: address, the others: values */
    PTX_OP_ATOMIC,          /* the same */
    PTX_OP_LOAD_MATRICES,
    PTX_OP_COPY, /* cp.async: from[0] to shared, from[1] from global memory, from[2] bytes of it */
    PTX_OP_COPY_WAIT,
    PTX_OP_BRANCH,
    PTX_OP_END,
    PTX_OP_TRAP,
    PTX_OP_BARRIER, /* of the block; from[0]: which, from[1]: predicate to reduce */
    PTX_OP_WARP_BARRIER,
    PTX_OP_ACTIVE_MASK,
} ptx_op_kind;

/* For whom the lanes that come to an op wait. */
typedef enum ptx_waits {
    PTX_WAITS_NOT,
    PTX_WAITS_FOR_MEMBERS, /* those of the mask `members` that did not end */
    PTX_WAITS_FOR_LIVE,    /* all of the warp that did not end */
    PTX_WAITS_FOR_WARP,    /* all 32; one that ended is a fault */
} ptx_waits;

typedef enum ptx_action {
    PTX_ADDS,
    PTX_EXCHANGES,
    PTX_COMPARES, /* atom.cas */
    PTX_ANDS,
    PTX_ORS,
    PTX_XORS,
    PTX_LEAST,
    PTX_MOST,
    PTX_COUNTS, /* bar.red.popc */
} ptx_action;

/* An operand: an offset in the warp's file, or with this bit in the kernel's constants. While a
 * kernel is decoded, the first is the number of a register instead. */
#define PTX_IS_CONSTANT UINT32_C(0x80000000)
#define PTX_NO_OPERAND UINT32_C(0x7fffffff) /* a result that nobody wants */

typedef struct ptx_op {
    uint8_t kind, waits, action, space;
    uint8_t to_count, from_count;
    uint8_t element_bytes, elements; /* of an access; of what is packed; x1, x2, x4 */
    bool is_guarded, guard_is_negated;
    bool is_signed;     /* loads extend the sign; least and most compare so */
    bool is_uniform;    /* a branch that the lanes of a group take alike */
    bool is_transposed; /* matrices */
    bool is_constant;   /* ld.global.nc */
    bool is_direct;     /* no result overlaps a source: all 32 lanes may be written in place */
    char to_letters[PTX_RESULTS_MAX], from_letters[PTX_SOURCES_MAX]; /* arithmetic.h */
    uint32_t to[PTX_RESULTS_MAX], from[PTX_SOURCES_MAX];
    uint32_t guard, members;
    uint32_t target; /* of a branch */
    uint32_t line;
    int64_t displacement[2]; /* of the addresses from[0] and from[1]; of cvta */
    ptx_arithmetic_function run;
    char *text;
} ptx_op;

/* What a launch or a warp fills in. */
typedef enum ptx_special {
    PTX_TID_X,
    PTX_TID_Y,
    PTX_TID_Z,
    PTX_NTID_X,
    PTX_NTID_Y,
    PTX_NTID_Z,
    PTX_CTAID_X,
    PTX_CTAID_Y,
    PTX_CTAID_Z,
    PTX_NCTAID_X,
    PTX_NCTAID_Y,
    PTX_NCTAID_Z,
    PTX_LANE,
    PTX_WARP,
    PTX_SPECIALS
} ptx_special;

/* The first bytes of a file take results that nobody wants, 256 bytes each; special registers and
 * all others follow. */
enum { PTX_SINK_BYTES = 256, PTX_FILE_FIRST = PTX_RESULTS_MAX * PTX_SINK_BYTES };

struct ptx_kernel {
    char *name;
    ptx_kernel_facts facts;
    ptx_op *ops;        /* [facts.instruction_count] */
    uint8_t *constants; /* 64-byte aligned */
    uint32_t file_bytes;
    uint32_t special_at[PTX_SPECIALS]; /* 0: not used */
    pthread_mutex_t lock;              /* guards the counts */
    uint64_t *groups, *lanes;
};

static inline uint64_t ptx_round_up(uint64_t value, uint64_t align)
{
    return align ? (value + align - 1) / align * align : value;
}

/* Compiled for several instruction sets, the best of which runs: loops over 32 lanes. */
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define PTX_EACH_SET __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PTX_EACH_SET
#endif

/* Part of such a function. */
#define PTX_INSIDE inline __attribute__((always_inline))

/* Bytes of 32 lanes of an operand of that letter. */
static inline uint32_t ptx_letter_bytes(char letter)
{
    return letter == 'd' ? 256 : letter == 'p' ? 4 : 128;
}

/* A register while a kernel is decoded. */
typedef struct ptx_register {
    char letter;
    uint32_t first, last; /* ops between which it lives; slots.c */
    uint32_t at;
    bool is_special; /* lives always, at `at` */
} ptx_register;

/* decode.c: `variables` are the module's, whose addresses are addresses[i]. */
bool ptx_decode(const ptx_kernel_words *words, const ptx_variable_list *variables,
                void *const *addresses, ptx_kernel *out, ptx_fault *out_fault);
void ptx_kernel_forget(ptx_kernel *kernel);

/* slots.c: gives each register a place in the file and puts it into the ops. Registers that never
 * live at once share a place. */
void ptx_place_registers(ptx_kernel *kernel, ptx_register *registers, uint32_t count);

#endif
