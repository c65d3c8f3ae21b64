/* CRC-32 as zlib computes it, without the cost of a Python call per record.
 *
 * On x86-64 with PCLMULQDQ 64 bytes are folded at a time by carry-less multiplication; the powers of
 * x below are for the bit-reflected polynomial 0xEDB88320. Elsewhere, and for what is left over,
 * eight bytes are looked up at a time.
 */
#ifndef COMETMQ_CRC32_H
#define COMETMQ_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define COMETMQ_FOLDS 1
#include <immintrin.h>
#endif

static uint32_t cometmq_crc_table[8][256];
static int cometmq_crc_folds = 0;

static void cometmq_crc_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
        cometmq_crc_table[0][byte] = value;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = cometmq_crc_table[step - 1][byte];
            cometmq_crc_table[step][byte] = cometmq_crc_table[0][before & 255] ^ (before >> 8);
        }
#ifdef COMETMQ_FOLDS
    cometmq_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t cometmq_crc_look_up(uint32_t state, const uint8_t *data, size_t size) {
#define COMETMQ_T cometmq_crc_table
    while (size >= 8) {
        uint32_t low = state ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                                (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        state = COMETMQ_T[7][low & 255] ^ COMETMQ_T[6][low >> 8 & 255] ^
                COMETMQ_T[5][low >> 16 & 255] ^ COMETMQ_T[4][low >> 24] ^ COMETMQ_T[3][data[4]] ^
                COMETMQ_T[2][data[5]] ^ COMETMQ_T[1][data[6]] ^ COMETMQ_T[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        state = COMETMQ_T[0][(state ^ *data++) & 255] ^ (state >> 8);
#undef COMETMQ_T
    return state;
}

#ifdef COMETMQ_FOLDS
#define COMETMQ_TARGET __attribute__((target("pclmul,sse4.1")))

/* Carry `lane` over the distance that `powers` stand for, and add what lies there. */
COMETMQ_TARGET static inline __m128i cometmq_fold(__m128i lane, __m128i powers, __m128i there) {
    __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

COMETMQ_TARGET static inline __m128i cometmq_load(const uint8_t *data) {
    return _mm_loadu_si128((const __m128i *)data);
}

/* At least 64 bytes, and a multiple of 16. */
COMETMQ_TARGET static uint32_t cometmq_crc_fold(uint32_t state, const uint8_t *data, size_t size) {
    const __m128i over_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i over_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i over_4 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i reduce = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane[4];
    for (int i = 0; i < 4; i++)
        lane[i] = cometmq_load(data + 16 * i);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)state));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int i = 0; i < 4; i++)
            lane[i] = cometmq_fold(lane[i], over_64, cometmq_load(data + 16 * i));
    __m128i sum = lane[0];
    for (int i = 1; i < 4; i++)
        sum = cometmq_fold(sum, over_16, lane[i]);
    for (; size >= 16; data += 16, size -= 16)
        sum = cometmq_fold(sum, over_16, cometmq_load(data));
    /* 128 bits to 96, to 64, and by Barrett's method to 32. */
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, over_16, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4),
                        _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), over_4, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), reduce, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), reduce, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1);
}
#endif

static uint32_t cometmq_crc32(const uint8_t *data, size_t size) {
    uint32_t state = 0xFFFFFFFFu;
#ifdef COMETMQ_FOLDS
    if (size >= 64 && cometmq_crc_folds) {
        size_t whole = size & ~(size_t)15;
        state = cometmq_crc_fold(state, data, whole);
        data += whole;
        size -= whole;
    }
#endif
    return ~cometmq_crc_look_up(state, data, size);
}

#endif
