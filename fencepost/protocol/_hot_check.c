/* SPDX-License-Identifier: Apache-2.0 */
/* What a broker must know of a batch's records before it appends them, without an object for each record. */

#include "_hot.h"

typedef struct {
    int64_t last_offset_delta;
    int64_t base_timestamp;
    int needs_keys;
    int64_t earliest;
    int64_t latest;
    Py_ssize_t most; /* of the wrong ones that are listed */
} Rules;

typedef struct {
    int64_t max_timestamp;
    int consecutive;
    int64_t wrong;
    PyObject *listed;
} Found;

static int
note_wrong(Found *found, const Rules *rules, Py_ssize_t index, int keyless, int64_t timestamp)
{
    found->wrong++;
    if (found->wrong > rules->most) {
        return 1;
    }
    PyObject *one = keyless ? Py_BuildValue("nO", index, Py_None) : Py_BuildValue("nL", index, (long long)timestamp);
    if (one == NULL) {
        return 0;
    }
    int failed = PyList_Append(found->listed, one);
    Py_DECREF(one);
    return !failed;
}

/* 0 where the records are unusual, or (with an exception) where there is no memory. */
static int
check_all(Cursor *data, Py_ssize_t count, const Rules *rules, Found *found)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        Parts parts;
        Cursor headers;
        if (!read_parts(data, rules->last_offset_delta, &parts, &headers)
            || !headers_fit(&headers, parts.header_count)) {
            return 0;
        }
        int64_t timestamp = wrapping_sum(rules->base_timestamp, parts.time_delta);
        int keyless = rules->needs_keys && parts.key_length < 0;
        if (timestamp > found->max_timestamp) {
            found->max_timestamp = timestamp;
        }
        found->consecutive &= parts.offset_delta == index;
        if ((keyless || (timestamp != -1 && (timestamp < rules->earliest || timestamp > rules->latest)))
            && !note_wrong(found, rules, index, keyless, timestamp)) {
            return 0;
        }
    }
    return data->at == data->end;
}

/* Whether all timestamps are -1 or in bounds; 0 also where the lengths of the records do not add up. */
static int
times_fit(Cursor *data, Py_ssize_t count, int64_t base, int64_t earliest, int64_t latest)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t size, delta;
        if (!read_int(data, &size) || size < 1 || size > data->end - data->at) {
            return 0;
        }
        Cursor record = {data->at + 1, data->at + size};
        if (!read_long(&record, &delta)) {
            return 0;
        }
        int64_t timestamp = wrapping_sum(base, delta);
        if (timestamp != -1 && (timestamp < earliest || timestamp > latest)) {
            return 0;
        }
        data->at += size;
    }
    return data->at == data->end;
}

PyObject *
hot_times_fit(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t count;
    long long base_timestamp, earliest, latest;
    if (!PyArg_ParseTuple(args, "y*nLLL:times_fit", &view, &count, &base_timestamp, &earliest, &latest)) {
        return NULL;
    }
    Cursor data = {view.buf, (const uint8_t *)view.buf + view.len};
    int fit = times_fit(&data, count, base_timestamp, earliest, latest);
    PyBuffer_Release(&view);
    return PyBool_FromLong(fit);
}

PyObject *
hot_check(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t count;
    long long last_offset_delta, base_timestamp, earliest, latest;
    Rules rules;
    if (!PyArg_ParseTuple(args, "y*nLLpLLn:check", &view, &count, &last_offset_delta, &base_timestamp,
                          &rules.needs_keys, &earliest, &latest, &rules.most)) {
        return NULL;
    }
    rules.last_offset_delta = last_offset_delta;
    rules.base_timestamp = base_timestamp;
    rules.earliest = earliest;
    rules.latest = latest;
    PyObject *result = NULL;
    Found found = {-1, 1, 0, PyList_New(0)};
    Cursor data = {view.buf, (const uint8_t *)view.buf + view.len};
    if (found.listed != NULL && check_all(&data, count, &rules, &found)) {
        result = Py_BuildValue("LOLO", (long long)found.max_timestamp, found.consecutive ? Py_True : Py_False,
                               (long long)found.wrong, found.listed);
    }
    Py_XDECREF(found.listed);
    PyBuffer_Release(&view);
    if (result == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return result;
}
