/* Two models in one program, an object of each for every thread; exit code 0 where all agree. */
#include "gru.h"
#include "quantized.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 3, STEPS = 200, ROWS = 4 };

typedef struct result {
    float last[GRU_Y_ELEMENTS(FRAMES, 1)];
    int32_t sums[QUANTIZED_Y_ELEMENTS(ROWS)];
    const char *error;
} result;

static const char *work(result *found)
{
    float x[GRU_X_ELEMENTS(FRAMES, 1)];
    uint8_t bytes[QUANTIZED_X_ELEMENTS(ROWS)];
    /* Memory of the caller's, with a mark behind it that nobody may write. */
    size_t needed = gru_memory_bytes(FRAMES, 1);
    unsigned char *block = malloc(needed + GRU_ALIGNMENT + 1), *memory = block;
    gru *stream = NULL;
    quantized *product = NULL;
    int code;
    memory += (GRU_ALIGNMENT - (uintptr_t)memory % GRU_ALIGNMENT) % GRU_ALIGNMENT;
    memory[needed] = 77;
    code = gru_create_in(memory, needed, FRAMES, 1, &stream);
    for (int step = 0; !code && step < STEPS; step++) {
        for (size_t i = 0; i < sizeof x / sizeof *x; i++)
            x[i] = (float)((step + (int)i) % 7) - 3;
        code = gru_step(stream, FRAMES, x, found->last);
    }
    if (code)
        return gru_error_text(code);
    if (memory[needed] != 77)
        return "the object is larger than it says";
    gru_destroy(stream);
    free(block);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(11 * i);
    code = quantized_create(ROWS, &product);
    if (!code)
        code = quantized_run(product, ROWS, bytes, found->sums);
    quantized_destroy(product);
    return code ? quantized_error_text(code) : NULL;
}

static void *thread(void *found)
{
    ((result *)found)->error = work(found);
    return NULL;
}

int main(void)
{
    static result found[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, thread, &found[i]))
            return 2;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        if (found[i].error || memcmp(&found[i], &found[0], offsetof(result, error)))
            return puts(found[i].error ? found[i].error : "threads differ"), 1;
    for (size_t i = 0; i < sizeof found->last / sizeof *found->last; i++)
        printf("%a ", (double)found->last[i]);
    for (size_t i = 0; i < sizeof found->sums / sizeof *found->sums; i++)
        printf("%d ", found->sums[i]);
    return 0;
}
