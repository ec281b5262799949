/* Constants of a program: persistent slots that are filled once, on the host, before the first
 * iteration, and only read by ops. Checkpoints do not have them.
 *
 * There is one kind: the table of rotary positions, fp32 [positions, 2, width / 2]. Row p has the
 * cosines and then the sines of the angles of position p, computed in double precision and rounded.
 */
#ifndef SL_PROGRAM_CONSTANT_H
#define SL_PROGRAM_CONSTANT_H

#include <stdbool.h>
#include <stdint.h>

/* How angles are scaled: not; by one factor; by a factor where few turns of a pair fit the original
 * context. */
typedef enum sl_angle_scaling {
    SL_ANGLES_PLAIN,
    SL_ANGLES_LINEAR,
    SL_ANGLES_BANDS
} sl_angle_scaling;

typedef struct sl_constant {
    uint32_t slot;       /* the persistent slot */
    uint32_t scaling;    /* an sl_angle_scaling */
    uint64_t positions;  /* rows */
    uint64_t width;      /* features of a head; even */
    double base, factor; /* as in the layer's spec, as are the next three; 0 where not read */
    double low_frequency_factor, high_frequency_factor;
    uint64_t original_context;
} sl_constant;

/* True if both tables are the same, whatever their slots. */
bool sl_constant_is_same(const sl_constant *a, const sl_constant *b);

/* Bytes of the table. */
static inline uint64_t sl_constant_bytes(const sl_constant *constant)
{
    return constant->positions * constant->width * sizeof(float);
}

/* The scaled angle at position 1 of pair `pair`, features `pair` and width / 2 + `pair`. */
double sl_constant_frequency(const sl_constant *constant, uint64_t pair);

/* Writes rows [first, first + count) of the table: count * width numbers. */
void sl_constant_fill(const sl_constant *constant, uint64_t first, uint64_t count, float *out);

#endif
