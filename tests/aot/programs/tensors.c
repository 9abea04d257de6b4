/* Prints the tables of a model with awkward names. */
#include "awkward.h"

#include <stdio.h>

int main(void)
{
    const awkward_tensor *tensor;
    for (int i = 0; (tensor = awkward_input(i)) != NULL; i++)
        printf("%s %s %d %d %d %s\n", tensor->name, tensor->type, tensor->item_bytes,
               tensor->rank, (int)tensor->sizes[0], tensor->dims[tensor->rank - 1]);
    for (int i = 0; (tensor = awkward_output(i)) != NULL; i++)
        printf("%s %s\n", tensor->name, tensor->state ? tensor->state : "-");
    return awkward_input(-1) != NULL || AWKWARD_MAX_RANK != 2;
}
