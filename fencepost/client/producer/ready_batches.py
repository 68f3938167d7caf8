"""Record batches that a program has built itself, checked before a producer adds its identity."""

from fencepost.protocol.batch_header import Buffer, CorruptBatch, check_crc, iter_headers


def whole_batches(batches: Buffer) -> list[tuple[bytearray, int]]:
    """A copy of each batch in a buffer, with its number of records.

    Raises CorruptBatch for unreadable batches, wrong CRCs and extra bytes; ValueError for control
    batches and batches with gaps in their offsets, which sequences cannot number.
    """
    found: list[tuple[bytearray, int]] = []
    end = 0
    with memoryview(batches) as view:
        for start, header in iter_headers(view):
            if header.is_control:
                raise ValueError(f"the batch at byte {start} is a control batch, which only brokers write")
            if not header.record_count or header.record_count != header.last_offset_delta + 1:
                raise ValueError(f"the batch at byte {start} has no records, or gaps between its offsets")
            if not check_crc(view, start, header):
                raise CorruptBatch(f"the batch at byte {start} has a wrong CRC")
            end = start + header.size_bytes
            found.append((bytearray(view[start:end]), header.record_count))
        if end != len(view):
            raise CorruptBatch(f"{len(view) - end} bytes follow the last complete batch")
    return found
