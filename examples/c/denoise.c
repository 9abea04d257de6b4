/* Removes noise from a WAV file, 10 ms at a time: 16 kHz, one channel, 16 bits.
 *
 *     ostinato build ostinato/demo/denoiser.onnx -o lib --state state=state_out --dim batch=1 --dim time=1
 *     cc -O2 examples/c/denoise.c -Ilib lib/libdenoiser.a -lm -o denoise
 *     ./denoise noisy.wav clean.wav
 *
 * Every 10 ms a frame of 20 ms is windowed and transformed; the model maps the magnitudes of its
 * spectrum to a mask; the masked spectrum is transformed back and overlapped with the frame before
 * it. The model's state is in the object, so that a step sees one frame alone.
 */
#include "denoiser.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BINS = DENOISER_MAGNITUDE_ELEMENTS,
    FRAME = 2 * (BINS - 1),
    HOP = FRAME / 2,
    HEADER = 44,
    RATE = 16000
};

static double window[FRAME], cosine[FRAME];

static void make_tables(void)
{
    const double pi = acos(-1.0);
    for (int i = 0; i < FRAME; i++) {
        window[i] = sin(pi * i / FRAME);
        cosine[i] = cos(2 * pi * i / FRAME);
    }
}

/* sin(2 pi i / FRAME), for i of 0 or more. */
static double sine(int i)
{
    return cosine[(i + 3 * FRAME / 4) % FRAME];
}

static void transform(const double *frame, double *re, double *im)
{
    for (int k = 0; k < BINS; k++) {
        re[k] = im[k] = 0;
        for (int i = 0; i < FRAME; i++) {
            re[k] += frame[i] * cosine[k * i % FRAME];
            im[k] -= frame[i] * sine(k * i % FRAME);
        }
    }
}

static void transform_back(const double *re, const double *im, double *frame)
{
    for (int i = 0; i < FRAME; i++) {
        frame[i] = re[0] + (i % 2 ? -re[BINS - 1] : re[BINS - 1]);
        for (int k = 1; k < BINS - 1; k++)
            frame[i] += 2 * (re[k] * cosine[k * i % FRAME] - im[k] * sine(k * i % FRAME));
        frame[i] /= FRAME;
    }
}

/* One frame in place; a code of the library. */
static int clean(denoiser *model, double *frame)
{
    double re[BINS], im[BINS];
    float magnitude[BINS], mask[BINS];
    int code;
    for (int i = 0; i < FRAME; i++)
        frame[i] *= window[i];
    transform(frame, re, im);
    for (int k = 0; k < BINS; k++)
        magnitude[k] = (float)hypot(re[k], im[k]);
    code = denoiser_step(model, magnitude, mask);
    for (int k = 0; k < BINS; k++) {
        re[k] *= mask[k];
        im[k] *= mask[k];
    }
    transform_back(re, im, frame);
    for (int i = 0; i < FRAME; i++)
        frame[i] *= window[i];
    return code;
}

static unsigned number(const unsigned char *bytes, int count)
{
    unsigned value = 0;
    while (count--)
        value = value << 8 | bytes[count];
    return value;
}

/* Whether the file is one that this program reads, and nothing but samples is left of it. */
static int is_speech(const unsigned char *header)
{
    return !memcmp(header, "RIFF", 4) && !memcmp(header + 8, "WAVEfmt ", 8)
        && number(header + 20, 2) == 1 && number(header + 22, 2) == 1
        && number(header + 24, 4) == RATE && number(header + 34, 2) == 16
        && !memcmp(header + 36, "data", 4);
}

/* Reads up to HOP samples as numbers from -1 to 1, zeros behind the last one. */
static int read_samples(FILE *file, double *samples)
{
    unsigned char bytes[2 * HOP];
    int count = (int)(fread(bytes, 2, HOP, file));
    for (int i = 0; i < HOP; i++)
        samples[i] = i < count ? (int16_t)number(bytes + 2 * i, 2) / 32768.0 : 0;
    return count;
}

static void write_samples(FILE *file, const double *samples, int count)
{
    unsigned char bytes[2 * HOP];
    for (int i = 0; i < count; i++) {
        double value = 32768 * samples[i];
        long rounded = lround(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
        bytes[2 * i] = (unsigned char)(rounded & 255);
        bytes[2 * i + 1] = (unsigned char)(rounded >> 8 & 255);
    }
    fwrite(bytes, 2, (size_t)count, file);
}

/* A message, and the exit code of the program. */
static int failed(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

int main(int count, char **words)
{
    unsigned char header[HEADER];
    double signal[FRAME] = { 0 }, frame[FRAME], before[HOP] = { 0 };
    long frames = 0;
    int code, samples = 0, following;
    denoiser *model = NULL;
    FILE *noisy, *cleaned;
    if (count != 3)
        return failed("usage", "denoise NOISY.wav CLEAN.wav");
    noisy = fopen(words[1], "rb");
    if (!noisy || fread(header, 1, HEADER, noisy) != HEADER || !is_speech(header))
        return failed(words[1], "expected a WAV file, 16 kHz, one channel, 16 bits");
    cleaned = fopen(words[2], "wb");
    if (!cleaned || fwrite(header, 1, HEADER, cleaned) != HEADER)
        return failed(words[2], "cannot be written");
    make_tables();
    code = denoiser_create(&model);
    /* A frame is the samples before and the following ones; its first half is then complete. */
    do {
        memmove(signal, signal + HOP, HOP * sizeof *signal);
        following = read_samples(noisy, signal + HOP);
        memcpy(frame, signal, sizeof frame);
        if (!code)
            code = clean(model, frame);
        for (int i = 0; i < HOP; i++)
            frame[i] += before[i];
        memcpy(before, frame + HOP, sizeof before);
        write_samples(cleaned, frame, samples);
        samples = following;
        frames++;
    } while (!code && samples > 0);
    denoiser_destroy(model);
    if (code)
        return failed("denoiser", denoiser_error_text(code));
    if (fclose(cleaned) || fclose(noisy))
        return failed(words[2], "cannot be written");
    printf("%ld frames of 10 ms\n", frames);
    return 0;
}
