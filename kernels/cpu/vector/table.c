/* The table of one instruction set. */
#include "isa.h"

#define SL_TEXT_(isa) #isa
#define SL_TEXT(isa) SL_TEXT_(isa)

const sl_vector SL_VECTOR(table) = {.isa = SL_TEXT(SL_ISA),
#define X(name, arguments) .name = SL_VECTOR(name),
                                    SL_VECTOR_LIST(X)
#undef X
};
