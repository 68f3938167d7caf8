/* SPDX-License-Identifier: Apache-2.0 */
/* Records of many batches as the buffers of Arrow columns. Twice through the bytes: to measure, then to write.
 *
 * As everywhere in this module None means: let the plain way look at it. The bytes may be anybody's, so the second pass
 * trusts nothing but the sizes that it was given room for: each write is checked against them.
 */

#include "_hot.h"

/* One batch: where its records lie in the data and what they count from. */
typedef struct {
    long long start;
    long long end;
    long long count;
    long long base_offset;
    long long last_offset_delta;
    long long timestamp; /* the base, or with LogAppendTime everybody's */
    int type;            /* 0 CreateTime, 1 LogAppendTime */
} Span;

/* An Arrow binary column in the making: validity bits, int32 offsets, bytes. */
typedef struct {
    int wanted;
    int64_t count;
    int64_t nulls;
    int64_t total;
    PyObject *parts[3]; /* validity and offsets: bytearrays; data: what `allocate` gave */
    Py_buffer view;     /* of the data, while it is written */
    uint8_t *bits;
    int32_t *offsets;
    uint8_t *data;
    int64_t row;
    int64_t used;
} Column;

typedef struct {
    int64_t rows;
    long long first_offset;
    long long stop_offset;
    Column key;
    Column value;
    Column name;     /* of headers, one row per header */
    Column content;  /* likewise */
    int headers_wanted;
    int64_t without_headers;
    PyObject *allocate;
    PyObject *numbers[3]; /* offset int64, timestamp int64, type int32 */
    int64_t *offset;
    int64_t *timestamp;
    int32_t *type;
    PyObject *lists[2]; /* validity and int32 offsets of the headers' lists */
    uint8_t *list_bits;
    int32_t *list_offsets;
    int64_t row;
} Table;

static inline void
count_in(Column *column, int64_t length)
{
    column->count++;
    if (length < 0) {
        column->nulls++;
    } else {
        column->total += length;
    }
}

/* Append a row; 0 where there is no room for it. */
static inline int
put_in(Column *column, const uint8_t *start, int64_t length)
{
    if (column->row >= column->count || (length > 0 && length > column->total - column->used)) {
        return 0;
    }
    if (length >= 0) {
        if (column->bits != NULL) {
            column->bits[column->row >> 3] |= (uint8_t)(1 << (column->row & 7));
        }
        if (length > 0) {
            memcpy(column->data + column->used, start, (size_t)length);
            column->used += length;
        }
    }
    column->row++;
    column->offsets[column->row] = (int32_t)column->used;
    return 1;
}

/* Whether bytes are UTF-8 as Python and Arrow have it: shortest form, no surrogates, at most U+10FFFF. */
static int
is_utf8(const uint8_t *at, int64_t length)
{
    const uint8_t *end = at + length;
    while (at < end) {
        uint8_t first = *at++;
        if (first < 128) {
            continue;
        }
        int more = first >= 0xC2 && first <= 0xDF ? 1 : first >= 0xE0 && first <= 0xEF ? 2
                   : first >= 0xF0 && first <= 0xF4 ? 3 : 0;
        if (more == 0 || end - at < more) {
            return 0;
        }
        uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (at[0] < low || at[0] > high) {
            return 0;
        }
        for (int index = 1; index < more; index++) {
            if ((at[index] & 0xC0) != 0x80) {
                return 0;
            }
        }
        at += more;
    }
    return 1;
}

/* The headers of one record, counted or (when `put`) written. */
static int
each_header(Table *table, Cursor *c, int64_t count, int put)
{
    for (int64_t index = 0; index < count; index++) {
        const uint8_t *name, *value;
        int64_t name_length, value_length;
        if (!read_bytes(c, &name, &name_length) || name_length < 0 || !read_bytes(c, &value, &value_length)) {
            return 0;
        }
        if (put) {
            if (!put_in(&table->name, name, name_length) || !put_in(&table->content, value, value_length)) {
                return 0;
            }
        } else {
            if (!is_utf8(name, name_length)) {
                return 0;
            }
            count_in(&table->name, name_length);
            count_in(&table->content, value_length);
        }
    }
    return c->at == c->end;
}

static int
count_record(Table *table, const Parts *parts, Cursor *rest)
{
    table->rows++;
    if (table->key.wanted) {
        count_in(&table->key, parts->key_length);
    }
    if (table->value.wanted) {
        count_in(&table->value, parts->value_length);
    }
    if (!table->headers_wanted) {
        return headers_fit(rest, parts->header_count);
    }
    if (parts->header_count == 0) {
        table->without_headers++;
        return 1;
    }
    return each_header(table, rest, parts->header_count, 0);
}

static int
put_record(Table *table, const Span *span, int64_t offset, const Parts *parts, Cursor *rest)
{
    int64_t row = table->row, timestamp = span->timestamp;
    if (row >= table->rows) {
        return 0;
    }
    if (!span->type) {
        timestamp = wrapping_sum(timestamp, parts->time_delta);
    }
    table->offset[row] = offset;
    table->timestamp[row] = timestamp;
    table->type[row] = span->type;
    table->row++;
    if ((table->key.wanted && !put_in(&table->key, parts->key, parts->key_length))
        || (table->value.wanted && !put_in(&table->value, parts->value, parts->value_length))) {
        return 0;
    }
    if (table->list_offsets == NULL) {
        return 1;
    }
    if (parts->header_count) {
        table->list_bits[row >> 3] |= (uint8_t)(1 << (row & 7));
        if (!each_header(table, rest, parts->header_count, 1)) {
            return 0;
        }
    }
    table->list_offsets[row + 1] = (int32_t)table->name.row;
    return 1;
}

/* The records of one batch, counted or (when `put`) written. 0 where anything does not fit. */
static int
each_record(Table *table, const Py_buffer *view, const Span *span, int put)
{
    const uint8_t *bytes = view->buf;
    Cursor data = {bytes + span->start, bytes + span->end};
    for (long long index = 0; index < span->count; index++) {
        Parts parts;
        Cursor rest;
        int64_t offset;
        if (!read_parts(&data, span->last_offset_delta, &parts, &rest)
            || __builtin_add_overflow(span->base_offset, parts.offset_delta, &offset)) {
            return 0;
        }
        if (offset < table->first_offset || offset >= table->stop_offset) {
            if (!put && !headers_fit(&rest, parts.header_count)) {
                return 0;
            }
            continue;
        }
        if (!(put ? put_record(table, span, offset, &parts, &rest) : count_record(table, &parts, &rest))) {
            return 0;
        }
    }
    return data.at == data.end;
}

static int
span_at(PyObject *batches, Py_ssize_t index, Py_ssize_t size, Span *span)
{
    PyObject *one = PyList_GetItem(batches, index);
    if (one == NULL || !PyTuple_Check(one)) {
        PyErr_SetString(PyExc_TypeError, "batches are tuples");
        return 0;
    }
    if (!PyArg_ParseTuple(one, "LLLLLLi", &span->start, &span->end, &span->count, &span->base_offset,
                          &span->last_offset_delta, &span->timestamp, &span->type)) {
        return 0;
    }
    return span->start >= 0 && span->end >= span->start && span->end <= size && span->count >= 0
           && span->count <= (span->end - span->start) / 7;
}

static int
each_batch(Table *table, const Py_buffer *view, PyObject *batches, int put)
{
    for (Py_ssize_t index = 0; index < PyList_Size(batches); index++) {
        Span span;
        if (!span_at(batches, index, view->len, &span) || !each_record(table, view, &span, put)) {
            return 0;
        }
    }
    return 1;
}

/* A bytearray of `size` bytes and where they are; zeros when asked for. NULL with an exception without memory. */
static void *
room(PyObject **owner, int64_t size, int zeros)
{
    *owner = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (*owner == NULL) {
        return NULL;
    }
    void *bytes = PyByteArray_AsString(*owner);
    if (zeros) {
        memset(bytes, 0, (size_t)size);
    }
    return bytes;
}

/* Room for the bytes of a column: a writable buffer from `allocate(size)`, whose memory is used over and over again. */
static int
make_room_for_data(Column *column, PyObject *allocate)
{
    column->parts[2] = PyObject_CallFunction(allocate, "L", (long long)column->total);
    if (column->parts[2] == NULL || PyObject_GetBuffer(column->parts[2], &column->view, PyBUF_WRITABLE) != 0) {
        return 0;
    }
    column->data = column->view.buf;
    if (column->view.len < column->total) {
        PyErr_SetString(PyExc_ValueError, "allocate gave less room than was asked for");
        return 0;
    }
    return 1;
}

static int
make_room_in(Column *column, PyObject *allocate)
{
    if (column->total > INT32_MAX || column->count >= INT32_MAX) {
        return 0;
    }
    if (column->nulls && (column->bits = room(&column->parts[0], (column->count + 7) / 8, 1)) == NULL) {
        return 0;
    }
    if ((column->offsets = room(&column->parts[1], (column->count + 1) * 4, 0)) == NULL) {
        return 0;
    }
    column->offsets[0] = 0;
    return make_room_for_data(column, allocate);
}

static int
make_room(Table *table)
{
    int64_t rows = table->rows;
    if ((table->offset = room(&table->numbers[0], rows * 8, 0)) == NULL
        || (table->timestamp = room(&table->numbers[1], rows * 8, 0)) == NULL
        || (table->type = room(&table->numbers[2], rows * 4, 0)) == NULL
        || (table->key.wanted && !make_room_in(&table->key, table->allocate))
        || (table->value.wanted && !make_room_in(&table->value, table->allocate))) {
        return 0;
    }
    if (!table->headers_wanted || table->without_headers == rows) {
        return 1;
    }
    if (rows >= INT32_MAX || (table->list_bits = room(&table->lists[0], (rows + 7) / 8, 1)) == NULL
        || (table->list_offsets = room(&table->lists[1], (rows + 1) * 4, 0)) == NULL) {
        return 0;
    }
    table->list_offsets[0] = 0;
    return make_room_in(&table->name, table->allocate) && make_room_in(&table->content, table->allocate);
}

/* (rows, nulls, validity | None, offsets, data), or None for a column nobody asked for. */
static PyObject *
column_as_tuple(const Column *column)
{
    if (!column->wanted) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("LLOOO", (long long)column->count, (long long)column->nulls,
                         column->parts[0] == NULL ? Py_None : column->parts[0], column->parts[1], column->parts[2]);
}

static PyObject *
headers_as_tuple(const Table *table)
{
    if (!table->headers_wanted) {
        Py_RETURN_NONE;
    }
    if (table->list_offsets == NULL) {
        return Py_BuildValue("LOOOO", (long long)table->without_headers, Py_None, Py_None, Py_None, Py_None);
    }
    return Py_BuildValue("LOONN", (long long)table->without_headers, table->lists[0], table->lists[1],
                         column_as_tuple(&table->name), column_as_tuple(&table->content));
}

static void
let_go(Table *table)
{
    Column *columns[] = {&table->key, &table->value, &table->name, &table->content};
    for (int index = 0; index < 4; index++) {
        if (columns[index]->view.obj != NULL) {
            PyBuffer_Release(&columns[index]->view);
        }
        for (int part = 0; part < 3; part++) {
            Py_XDECREF(columns[index]->parts[part]);
        }
    }
    for (int index = 0; index < 3; index++) {
        Py_XDECREF(table->numbers[index]);
    }
    Py_XDECREF(table->lists[0]);
    Py_XDECREF(table->lists[1]);
}

PyObject *
hot_columns(PyObject *module, PyObject *args)
{
    Py_buffer view;
    PyObject *batches, *result = NULL;
    Table table = {0};
    if (!PyArg_ParseTuple(args, "y*O!LLpppO:columns", &view, &PyList_Type, &batches, &table.first_offset,
                          &table.stop_offset, &table.key.wanted, &table.value.wanted, &table.headers_wanted,
                          &table.allocate)) {
        return NULL;
    }
    table.name.wanted = table.content.wanted = table.headers_wanted;
    if (each_batch(&table, &view, batches, 0) && make_room(&table) && each_batch(&table, &view, batches, 1)
        && table.row == table.rows) {
        result = Py_BuildValue("LOOONNN", (long long)table.rows, table.numbers[0], table.numbers[1], table.numbers[2],
                               column_as_tuple(&table.key), column_as_tuple(&table.value), headers_as_tuple(&table));
    }
    let_go(&table);
    PyBuffer_Release(&view);
    if (result == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return result;
}
