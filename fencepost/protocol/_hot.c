/* SPDX-License-Identifier: Apache-2.0 */
/* Record encode and decode, compiled. An optional part: fencepost.protocol.records does the same in Python.
 *
 * The one rule here: what is the least bit unusual or wrong is not judged. The function returns None, and the plain way,
 * which knows every error and its words, does it all again. So both ways give the same result or the same error, and
 * nothing here needs to know an error's name. No Python code runs between a check and the use of what was checked: all
 * values are taken from exact tuples, lists, bytes, str and int only.
 */

#include "_hot.h"
#include <stdlib.h>

/* ---- decoding ---- */

static PyObject *
bytes_or_none(const uint8_t *start, int64_t length)
{
    if (length < 0) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    return PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)length);
}

/* ((name, value), ...); NULL without an exception where they do not fit the record exactly. */
static PyObject *
read_headers(Cursor *c, int64_t count)
{
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    if (headers == NULL) {
        return NULL;
    }
    for (int64_t index = 0; index < count; index++) {
        const uint8_t *name, *value;
        int64_t name_length, value_length;
        if (!read_bytes(c, &name, &name_length) || name_length < 0 || !read_bytes(c, &value, &value_length)) {
            goto failed;
        }
        PyObject *pair = PyTuple_New(2);
        if (pair == NULL) {
            goto failed;
        }
        PyTuple_SetItem(headers, (Py_ssize_t)index, pair);
        PyObject *text = PyUnicode_DecodeUTF8((const char *)name, (Py_ssize_t)name_length, "replace");
        if (text == NULL) {
            goto failed;
        }
        PyTuple_SetItem(pair, 0, text);
        PyObject *content = bytes_or_none(value, value_length);
        if (content == NULL) {
            goto failed;
        }
        PyTuple_SetItem(pair, 1, content);
    }
    if (c->at == c->end) {
        return headers;
    }
failed:
    Py_DECREF(headers);
    return NULL;
}

typedef struct {
    PyTypeObject *kind;
    PyObject *prefix;
    Py_ssize_t prefix_length;
    PyObject *no_headers;
    PyObject *stamp; /* one timestamp for all, or NULL */
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t last_offset_delta;
} Form;

/* One record as an instance of a tuple's subclass; NULL, mostly without an exception, where it does not fit. */
static PyObject *
read_record(Cursor *data, const Form *form)
{
    Parts parts;
    Cursor rest;
    int64_t offset, timestamp;
    if (!read_parts(data, form->last_offset_delta, &parts, &rest)
        || __builtin_add_overflow(form->base_offset, parts.offset_delta, &offset)) {
        return NULL;
    }
    timestamp = wrapping_sum(form->base_timestamp, parts.time_delta);
    PyObject *record = PyType_GenericAlloc(form->kind, form->prefix_length + 5);
    if (record == NULL) {
        return NULL;
    }
    Py_ssize_t place = 0;
    for (; place < form->prefix_length; place++) {
        PyObject *same = PyTuple_GetItem(form->prefix, place);
        Py_INCREF(same);
        PyTuple_SetItem(record, place, same);
    }
    PyObject *items[5] = {NULL, NULL, NULL, NULL, NULL};
    items[0] = PyLong_FromLongLong(offset);
    if (form->stamp != NULL) {
        Py_INCREF(form->stamp);
        items[1] = form->stamp;
    } else {
        items[1] = PyLong_FromLongLong(timestamp);
    }
    items[2] = bytes_or_none(parts.key, parts.key_length);
    items[3] = bytes_or_none(parts.value, parts.value_length);
    if (parts.header_count) {
        items[4] = read_headers(&rest, parts.header_count);
    } else {
        Py_INCREF(form->no_headers);
        items[4] = form->no_headers;
    }
    int complete = 1;
    for (int index = 0; index < 5; index++) {
        if (items[index] == NULL) {
            complete = 0;
        } else {
            PyTuple_SetItem(record, place + index, items[index]);
        }
    }
    /* It holds only atoms and tuples of atoms, so it can be in no cycle; tuple does the same for itself. */
    PyObject_GC_UnTrack(record);
    if (!complete) {
        Py_DECREF(record);
        return NULL;
    }
    return record;
}

static int
is_plain(PyObject *one)
{
    return one == Py_None || PyLong_CheckExact(one) || PyUnicode_CheckExact(one) || PyBytes_CheckExact(one);
}

static int
usable_form(const Form *form)
{
    if (!PyType_IsSubtype(form->kind, &PyTuple_Type)
        || !(PyType_GetFlags(form->kind) & Py_TPFLAGS_HEAPTYPE) || !(PyType_GetFlags(form->kind) & Py_TPFLAGS_HAVE_GC)) {
        PyErr_SetString(PyExc_TypeError, "records must be instances of a subclass of tuple");
        return 0;
    }
    for (Py_ssize_t index = 0; index < form->prefix_length; index++) {
        if (!is_plain(PyTuple_GetItem(form->prefix, index))) {
            PyErr_SetString(PyExc_TypeError, "a prefix holds str, bytes, int and None only");
            return 0;
        }
    }
    return 1;
}

/* The whole list, or NULL; an exception is set only where it is none of the bytes' fault. */
static PyObject *
read_records(Cursor *data, Py_ssize_t count, const Form *form)
{
    PyObject *records = PyList_New(count);
    if (records == NULL) {
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *record = read_record(data, form);
        if (record == NULL) {
            Py_DECREF(records);
            return NULL;
        }
        PyList_SetItem(records, index, record);
    }
    if (data->at != data->end) {
        Py_DECREF(records);
        return NULL;
    }
    return records;
}

PyDoc_STRVAR(decode_doc,
    "decode(data, count, base_offset, last_offset_delta, base_timestamp, stamp, kind, prefix) -> list | None");

static PyObject *
hot_decode(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t count;
    PyObject *stamp, *kind, *prefix;
    long long base_offset, last_offset_delta, base_timestamp;
    if (!PyArg_ParseTuple(args, "y*nLLLOO!O!:decode", &view, &count, &base_offset, &last_offset_delta, &base_timestamp,
                          &stamp, &PyType_Type, &kind, &PyTuple_Type, &prefix)) {
        return NULL;
    }
    PyObject *records = NULL;
    Form form = {(PyTypeObject *)kind, prefix, PyTuple_Size(prefix), PyTuple_New(0), stamp == Py_None ? NULL : stamp,
                 base_offset, base_timestamp, last_offset_delta};
    /* A record takes seven bytes at least: a count that lies must not cost memory. */
    if (form.no_headers != NULL && usable_form(&form) && count >= 0 && count <= view.len / 7 && is_plain(stamp)) {
        Cursor data = {view.buf, (const uint8_t *)view.buf + view.len};
        records = read_records(&data, count, &form);
    }
    Py_XDECREF(form.no_headers);
    PyBuffer_Release(&view);
    if (records == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return records;
}

/* ---- encoding ---- */

typedef struct {
    const char *bytes; /* NULL: null */
    Py_ssize_t length;
} Slice;

/* bytes or None as a slice; 0 for all else. */
static int
slice_of(PyObject *one, Slice *slice)
{
    if (one == Py_None) {
        slice->bytes = NULL;
        slice->length = 0;
        return 1;
    }
    if (!PyBytes_CheckExact(one)) {
        return 0;
    }
    slice->bytes = PyBytes_AsString(one);
    slice->length = PyBytes_Size(one);
    return 1;
}

static inline Py_ssize_t
varint_size(uint64_t value)
{
    Py_ssize_t size = 1;
    while (value > 127) {
        value >>= 7;
        size++;
    }
    return size;
}

static inline uint8_t *
put_varint(uint8_t *at, uint64_t value)
{
    while (value > 127) {
        *at++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static inline Py_ssize_t
slice_size(const Slice *slice)
{
    return slice->bytes == NULL ? 1 : varint_size(zigzag(slice->length)) + slice->length;
}

static inline uint8_t *
put_slice(uint8_t *at, const Slice *slice)
{
    if (slice->bytes == NULL) {
        *at++ = 1;
        return at;
    }
    at = put_varint(at, zigzag(slice->length));
    memcpy(at, slice->bytes, (size_t)slice->length);
    return at + slice->length;
}

/* Element `index` of an exact list or tuple, borrowed. */
static inline PyObject *
item_of(PyObject *sequence, Py_ssize_t index)
{
    return PyTuple_CheckExact(sequence) ? PyTuple_GetItem(sequence, index) : PyList_GetItem(sequence, index);
}

static inline Py_ssize_t
length_of(PyObject *sequence)
{
    return PyTuple_CheckExact(sequence) ? PyTuple_Size(sequence) : PyList_Size(sequence);
}

/* A header's name and value; 0 for what is not a tuple of str and bytes or None. */
static int
header_at(PyObject *headers, Py_ssize_t index, Slice *name, Slice *value)
{
    PyObject *pair = item_of(headers, index);
    if (pair == NULL || !PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2) {
        return 0;
    }
    PyObject *text = PyTuple_GetItem(pair, 0);
    if (!PyUnicode_CheckExact(text)) {
        return 0;
    }
    name->bytes = PyUnicode_AsUTF8AndSize(text, &name->length);
    return name->bytes != NULL && slice_of(PyTuple_GetItem(pair, 1), value);
}

typedef struct {
    int64_t time_delta;
    int64_t offset_delta;
    Slice key;
    Slice value;
    PyObject *headers; /* an exact list or tuple */
    Py_ssize_t header_count;
    Py_ssize_t body_size;
    Py_ssize_t size; /* with its length in front */
} NewRecord;

typedef struct {
    PyTypeObject *kind;
    int64_t base_timestamp;
    int64_t base_offset;
    int64_t delta;
    int64_t max_timestamp;
} Batch;

static int
int_of(PyObject *number, int64_t *out)
{
    int overflow = 0;
    if (!PyLong_CheckExact(number)) {
        return 0;
    }
    *out = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow;
}

/* Where the record stands; takes its offset, or the next one. 0 where that is not for us to say. */
static int
place_record(PyObject *record, Batch *batch, PyObject **fields, NewRecord *out)
{
    int64_t timestamp, offset;
    Py_ssize_t first = 0;
    if (Py_TYPE(record) == batch->kind) {
        if (PyTuple_Size(record) != 5 || !int_of(PyTuple_GetItem(record, 0), &offset)
            || __builtin_sub_overflow(offset, batch->base_offset, &offset) || offset <= batch->delta) {
            return 0;
        }
        batch->delta = offset;
        first = 1;
    } else if (PyTuple_CheckExact(record) && PyTuple_Size(record) == 4) {
        if (__builtin_add_overflow(batch->delta, 1, &batch->delta)) {
            return 0;
        }
    } else {
        return 0;
    }
    if (!int_of(PyTuple_GetItem(record, first), &timestamp)
        || __builtin_sub_overflow(timestamp, batch->base_timestamp, &out->time_delta)) {
        return 0;
    }
    if (timestamp > batch->max_timestamp) {
        batch->max_timestamp = timestamp;
    }
    out->offset_delta = batch->delta;
    for (int index = 0; index < 3; index++) {
        fields[index] = PyTuple_GetItem(record, first + 1 + index);
    }
    return 1;
}

/* Look at one record: what it holds and how long it gets. 0 where it is unusual. */
static int
measure(PyObject *record, Batch *batch, NewRecord *out)
{
    PyObject *fields[3];
    if (!place_record(record, batch, fields, out) || !slice_of(fields[0], &out->key)
        || !slice_of(fields[1], &out->value)) {
        return 0;
    }
    out->headers = fields[2];
    if (!PyTuple_CheckExact(out->headers) && !PyList_CheckExact(out->headers)) {
        return 0;
    }
    out->header_count = length_of(out->headers);
    out->body_size = 1 + varint_size(zigzag(out->time_delta)) + varint_size(zigzag(out->offset_delta))
                     + slice_size(&out->key) + slice_size(&out->value) + varint_size(zigzag(out->header_count));
    for (Py_ssize_t index = 0; index < out->header_count; index++) {
        Slice name, value;
        if (!header_at(out->headers, index, &name, &value)) {
            return 0;
        }
        out->body_size += slice_size(&name) + slice_size(&value);
    }
    out->size = varint_size(zigzag(out->body_size)) + out->body_size;
    return 1;
}

/* Write what was measured; there must be `record->size` bytes. NULL where a header is not what it was. */
static uint8_t *
put_record(uint8_t *at, const NewRecord *record)
{
    at = put_varint(at, zigzag(record->body_size));
    *at++ = 0;
    at = put_varint(at, zigzag(record->time_delta));
    at = put_varint(at, zigzag(record->offset_delta));
    at = put_slice(at, &record->key);
    at = put_slice(at, &record->value);
    at = put_varint(at, zigzag(record->header_count));
    for (Py_ssize_t index = 0; index < record->header_count; index++) {
        Slice name, value;
        if (!header_at(record->headers, index, &name, &value)) {
            return NULL;
        }
        at = put_slice(at, &name);
        at = put_slice(at, &value);
    }
    return at;
}

/* All records behind `reserve` zeros in a new bytearray; NULL, mostly without an exception, where one is unusual. */
static PyObject *
write_records(PyObject *records, Batch *batch, Py_ssize_t reserve)
{
    Py_ssize_t count = length_of(records), total = reserve;
    Batch begin = *batch;
    NewRecord record;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (!measure(item_of(records, index), batch, &record) || record.size > INT32_MAX
            || __builtin_add_overflow(total, record.size, &total)) {
            return NULL;
        }
    }
    PyObject *out = PyByteArray_FromStringAndSize(NULL, total);
    if (out == NULL) {
        return NULL;
    }
    uint8_t *at = (uint8_t *)PyByteArray_AsString(out), *end = at + total;
    memset(at, 0, (size_t)reserve);
    at += reserve;
    *batch = begin;
    for (Py_ssize_t index = 0; index < count && at != NULL; index++) {
        at = measure(item_of(records, index), batch, &record) && record.size <= end - at ? put_record(at, &record) : NULL;
    }
    if (at != end) {
        Py_DECREF(out);
        return NULL;
    }
    return out;
}

PyDoc_STRVAR(encode_doc,
    "encode(records, base_timestamp, base_offset, kind, reserve) -> (bytearray, last delta, max timestamp) | None");

static PyObject *
hot_encode(PyObject *module, PyObject *args)
{
    PyObject *records, *kind;
    long long base_timestamp, base_offset;
    Py_ssize_t reserve;
    if (!PyArg_ParseTuple(args, "OLLO!n:encode", &records, &base_timestamp, &base_offset, &PyType_Type, &kind, &reserve)) {
        return NULL;
    }
    if (reserve < 0 || (!PyTuple_CheckExact(records) && !PyList_CheckExact(records))) {
        Py_RETURN_NONE;
    }
    Batch batch = {(PyTypeObject *)kind, base_timestamp, base_offset, -1, -1};
    PyObject *out = write_records(records, &batch, reserve);
    if (out != NULL) {
        return Py_BuildValue("NLL", out, (long long)batch.delta, (long long)batch.max_timestamp);
    }
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_UnicodeError)) {
        PyErr_Clear(); /* a lone surrogate in a header's name: the plain way raises it again */
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- the module ---- */

static int
hot_exec(PyObject *module)
{
    const char *pure = getenv("FENCEPOST_PURE");
    if (pure != NULL && pure[0] != '\0' && strcmp(pure, "0") != 0) {
        PyErr_SetString(PyExc_ImportError, "FENCEPOST_PURE is set: records go the way of plain Python");
        return -1;
    }
    return PyModule_AddIntConstant(module, "INTERFACE", HOT_INTERFACE);
}

PyDoc_STRVAR(columns_doc,
    "columns(data, batches, first_offset, stop_offset, key, value, headers, allocate) -> tuple | None");

PyDoc_STRVAR(check_doc,
    "check(data, count, last_offset_delta, base_timestamp, needs_keys, earliest, latest, most)\n"
    "-> (max timestamp, consecutive offsets, number of wrong records, [(index, timestamp | None)]) | None");

PyDoc_STRVAR(times_fit_doc, "times_fit(data, count, base_timestamp, earliest, latest) -> bool");

static PyMethodDef methods[] = {
    {"decode", hot_decode, METH_VARARGS, decode_doc},
    {"encode", hot_encode, METH_VARARGS, encode_doc},
    {"columns", hot_columns, METH_VARARGS, columns_doc},
    {"check", hot_check, METH_VARARGS, check_doc},
    {"times_fit", hot_times_fit, METH_VARARGS, times_fit_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, hot_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fencepost.protocol._hot",
    .m_doc = "Record encode and decode, compiled; see docs/decisions.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__hot(void)
{
    return PyModuleDef_Init(&definition);
}
