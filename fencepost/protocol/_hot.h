/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the compiled record code share: varints that never leave their bounds. */

#ifndef FENCEPOST_HOT_H
#define FENCEPOST_HOT_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Changes with every change of what a function takes or gives: compiled.py knows by it a module of another version. */
#define HOT_INTERFACE 3

/* Where the code reads; `at` never passes `end`. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* An unsigned varint of at most `max_bytes`. 0 where it does not end in time, or does not fit 64 bits. */
static inline int
read_varint(Cursor *c, int max_bytes, uint64_t *out)
{
    uint64_t value = 0;
    int shift = 0;
    for (int index = 0; index < max_bytes; index++) {
        if (c->at >= c->end) {
            return 0;
        }
        uint8_t byte = *c->at++;
        if (index == 9 && byte > 1) {
            return 0;
        }
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = value;
            return 1;
        }
        shift += 7;
    }
    return 0;
}

static inline int64_t
unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static inline uint64_t
zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value < 0 ? -1 : 0);
}

/* A zigzag varint of a 32-bit field, as the plain decoder reads it: at most five bytes, so at most 35 bits. */
static inline int
read_int(Cursor *c, int64_t *out)
{
    uint64_t value;
    if (c->at < c->end && *c->at < 128) {
        value = *c->at++;
    } else if (!read_varint(c, 5, &value)) {
        return 0;
    }
    *out = unzigzag(value);
    return 1;
}

static inline int
read_long(Cursor *c, int64_t *out)
{
    uint64_t value;
    if (!read_varint(c, 10, &value)) {
        return 0;
    }
    *out = unzigzag(value);
    return 1;
}

/* A length and the bytes it announces; length -1 is null. 0 where they do not fit. */
static inline int
read_bytes(Cursor *c, const uint8_t **start, int64_t *length)
{
    if (!read_int(c, length) || *length < -1 || *length > c->end - c->at) {
        return 0;
    }
    *start = c->at;
    if (*length > 0) {
        c->at += *length;
    }
    return 1;
}

/* A record without its headers; `c` then stands behind the header count, and `end` is the record's. */
typedef struct {
    int64_t time_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_length;
    const uint8_t *value;
    int64_t value_length;
    int64_t header_count;
    const uint8_t *end;
} Parts;

/* Read one record up to its headers, every length checked. `data` is left at the headers, bounded by the record. */
static inline int
read_parts(Cursor *data, int64_t last_offset_delta, Parts *parts, Cursor *headers)
{
    int64_t size;
    if (!read_int(data, &size) || size < 1 || size > data->end - data->at) {
        return 0;
    }
    Cursor c = {data->at + 1, data->at + size};
    parts->end = c.end;
    if (!read_long(&c, &parts->time_delta) || !read_int(&c, &parts->offset_delta)
        || parts->offset_delta < 0 || parts->offset_delta > last_offset_delta
        || !read_bytes(&c, &parts->key, &parts->key_length)
        || !read_bytes(&c, &parts->value, &parts->value_length)
        || !read_int(&c, &parts->header_count)
        || parts->header_count < 0 || parts->header_count > (c.end - c.at) / 2
        || (parts->header_count == 0 && c.at != c.end)) {
        return 0;
    }
    *headers = c;
    data->at = c.end;
    return 1;
}

/* Whether headers that are not wanted end with their record. */
static inline int
headers_fit(Cursor *c, int64_t count)
{
    for (int64_t index = 0; index < count; index++) {
        const uint8_t *bytes;
        int64_t length;
        if (!read_bytes(c, &bytes, &length) || length < 0 || !read_bytes(c, &bytes, &length)) {
            return 0;
        }
    }
    return c->at == c->end;
}

/* A record's timestamp, as Java adds it. */
static inline int64_t
wrapping_sum(int64_t base, int64_t delta)
{
    return (int64_t)((uint64_t)base + (uint64_t)delta);
}

PyObject *hot_columns(PyObject *module, PyObject *args);
PyObject *hot_check(PyObject *module, PyObject *args);
PyObject *hot_times_fit(PyObject *module, PyObject *args);

#endif
