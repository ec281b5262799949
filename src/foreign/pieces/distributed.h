/* A checkpoint of torch.distributed.checkpoint as its FileSystemWriter leaves it: `.metadata`, a
 * pickle of an object Metadata that says of each tensor its size and its chunks and of each chunk
 * where it lies, and files such as `__0_0.distcp`, in which archives of torch.save follow each
 * other.
 *
 * Nothing of a pickle is executed (torch/pickle.h). Nothing of it is trusted: a chunk is within its
 * tensor, chunks cover a tensor once, a name leads to a plain file of the directory that ends in
 * .distcp, archives are within their files and do not overlap, and an archive holds a tensor of the
 * chunk's size and type.
 */
#ifndef SL_FOREIGN_PIECES_DISTRIBUTED_H
#define SL_FOREIGN_PIECES_DISTRIBUTED_H

#include "parts.h"

#define SL_DISTRIBUTED_METADATA ".metadata"

/* Whether a directory has such a file. */
bool sl_distributed_is_at(const char *directory);

/* Lists the floating-point tensors of up to three dimensions. Tensors of other types, larger ones,
 * and objects that are no tensors are left out. SL_ERROR_MISSING, SL_ERROR_DATA, SL_ERROR_IO. */
sl_status sl_distributed_open(const char *directory, sl_parts *out_parts);

#endif
