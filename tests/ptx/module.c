/* A module: its kernels, decoded, and the memory of its variables. */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

struct ptx_module {
    ptx_kernel *kernels;
    uint32_t kernel_count, variable_count;
    void **addresses; /* of variables in global or const space; NULL: of another */
    uint64_t *variable_bytes;
    char **variable_names;
};

enum { VARIABLE_ALIGN = 256 };

static bool open_variables(ptx_module *module, const ptx_variable_list *list, ptx_fault *fault)
{
    module->addresses = ptx_take(list->count, sizeof *module->addresses);
    module->variable_bytes = ptx_take(list->count, sizeof *module->variable_bytes);
    module->variable_names = ptx_take(list->count, sizeof *module->variable_names);
    module->variable_count = list->count;
    for (uint32_t i = 0; i < list->count; i++) {
        const ptx_variable_words *variable = &list->items[i];
        const uint64_t bytes = module->variable_bytes[i] = variable->bytes;
        module->variable_names[i] = ptx_word_copy(variable->name);
        if (variable->space == PTX_SHARED)
            continue;
        if (variable->space == PTX_LOCAL || bytes == 0)
            return ptx_fail(fault, "the variable %s is not handled", module->variable_names[i]);
        uint8_t *memory = module->addresses[i] = aligned_alloc(
            VARIABLE_ALIGN, (bytes + VARIABLE_ALIGN - 1) / VARIABLE_ALIGN * VARIABLE_ALIGN);
        if (!memory)
            return ptx_fail(fault, "no memory for the variable %s", module->variable_names[i]);
        memset(memory, 0, bytes);
        for (uint32_t k = 0; k < variable->values.count; k++)
            memcpy(memory + k * variable->element_bytes, &variable->values.items[k],
                   variable->element_bytes);
    }
    return true;
}

static bool open_kernels(ptx_module *module, const ptx_text *text, ptx_fault *fault)
{
    module->kernels = ptx_take(text->kernels.count, sizeof *module->kernels);
    for (uint32_t i = 0; i < text->kernels.count; i++) {
        module->kernel_count++;
        if (!ptx_decode(&text->kernels.items[i], &text->variables, module->addresses,
                        &module->kernels[i], fault))
            return false;
    }
    return true;
}

bool ptx_module_open(const char *text, uint64_t bytes, ptx_module **out, ptx_fault *out_fault)
{
    ptx_text read;
    if (!ptx_text_read(text, bytes, &read, out_fault))
        return false;
    ptx_module *module = ptx_take(1, sizeof *module);
    const bool is_good = open_variables(module, &read.variables, out_fault) &&
                         open_kernels(module, &read, out_fault);
    ptx_text_forget(&read);
    if (!is_good) {
        ptx_module_close(module);
        return false;
    }
    *out = module;
    return true;
}

void ptx_module_close(ptx_module *module)
{
    if (!module)
        return;
    for (uint32_t i = 0; i < module->kernel_count; i++)
        ptx_kernel_forget(&module->kernels[i]);
    for (uint32_t i = 0; i < module->variable_count; i++) {
        free(module->addresses[i]);
        free(module->variable_names[i]);
    }
    free(module->kernels);
    free(module->addresses);
    free(module->variable_bytes);
    free(module->variable_names);
    free(module);
}

uint32_t ptx_module_kernel_count(const ptx_module *module)
{
    return module->kernel_count;
}

ptx_kernel *ptx_module_kernel_at(const ptx_module *module, uint32_t index)
{
    return &module->kernels[index];
}

ptx_kernel *ptx_module_kernel(const ptx_module *module, const char *name)
{
    for (uint32_t i = 0; i < module->kernel_count; i++)
        if (strcmp(module->kernels[i].name, name) == 0)
            return &module->kernels[i];
    return NULL;
}

void *ptx_module_variable(const ptx_module *module, const char *name, uint64_t *out_bytes)
{
    for (uint32_t i = 0; i < module->variable_count; i++)
        if (module->addresses[i] && strcmp(module->variable_names[i], name) == 0) {
            *out_bytes = module->variable_bytes[i];
            return module->addresses[i];
        }
    return NULL;
}

ptx_kernel_facts ptx_kernel_tell(const ptx_kernel *kernel)
{
    return kernel->facts;
}

ptx_instruction ptx_kernel_instruction(const ptx_kernel *kernel, uint32_t index)
{
    ptx_kernel *locked = (ptx_kernel *)kernel; /* only its lock changes */
    const ptx_op *op = &kernel->ops[index];
    pthread_mutex_lock(&locked->lock);
    const ptx_instruction told = {op->text, op->line, kernel->groups[index], kernel->lanes[index]};
    pthread_mutex_unlock(&locked->lock);
    return told;
}

void ptx_kernel_forget_counts(ptx_kernel *kernel)
{
    pthread_mutex_lock(&kernel->lock);
    memset(kernel->groups, 0, kernel->facts.instruction_count * sizeof *kernel->groups);
    memset(kernel->lanes, 0, kernel->facts.instruction_count * sizeof *kernel->lanes);
    pthread_mutex_unlock(&kernel->lock);
}
