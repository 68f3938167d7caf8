"""Record batches that a program has made itself, checked before a producer puts its name on them."""

from fencepost.protocol.batch_header import Buffer, CorruptBatch, check_crc, iter_headers


def whole_batches(batches: Buffer) -> list[tuple[bytearray, int]]:
    """Each batch in a buffer, copied, and how many records it has.

    Raises CorruptBatch for what cannot be read, wrong CRCs and bytes that are left over; ValueError for control
    batches and batches with holes in their offsets, which a sequence cannot count.
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
