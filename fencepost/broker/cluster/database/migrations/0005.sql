-- Version 5: what is acknowledged after the database went back in time stays as it was acknowledged.
-- Claimed ids are random, so that no life of the database gives an id that another life gave: PostgresEngine.claim.
-- Each row has a checksum of its bytes; rows of earlier versions have none.

ALTER TABLE object ALTER COLUMN id DROP IDENTITY;
ALTER TABLE entry ADD COLUMN checksum bigint;

-- As before, with one more array: `checksums`.
DROP FUNCTION fp_append(integer, bigint, bigint, bigint, bigint[], bigint[], bigint[], boolean[], text[], bytea[],
    bigint[], smallint[], integer[], bigint[], bigint[], bigint[], bigint[], bigint[], text[], bytea[], bytea[],
    bytea[]);
DROP FUNCTION fp_replace(integer, bigint, bigint, bigint[], bigint, bigint, bigint, bigint[], bigint[], bigint[],
    smallint[], integer[], bigint[], bigint[], bigint[], bigint[], bigint[], text[], bytea[], bytea[], bytea[],
    bigint[], text[], bigint[], bytea[]);

-- One commit. All arrays from `logs` on have one element for each row; `expected` is NULL for a guest, `names` is NULL
-- for a log that is there already; an element of `producer_ids` is the text of an array.
CREATE FUNCTION fp_append(
    me integer, my_incarnation bigint, my_session bigint, seq bigint, claimed bigint[],
    logs bigint[], expected bigint[], fixed boolean[], names text[], topic_ids bytea[],
    counts bigint[], kinds smallint[], leader_epochs integer[], objects bigint[], positions bigint[], sizes bigint[],
    max_timestamps bigint[], batch_counts bigint[], producers text[], header_bytes bytea[], aborted_bytes bytea[],
    inline_bytes bytea[], checksums bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
    answer bigint[];
    refused json;
BEGIN
    PERFORM FROM broker
        WHERE id = me AND incarnation = my_incarnation AND session = my_session AND commit_seq = seq - 1
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'FP001', MESSAGE = format(
            'broker %s with incarnation %s and session %s is fenced, or %s is not its next commit',
            me, my_incarnation, my_session, seq);
    END IF;

    IF array_remove(names, NULL) <> '{}' THEN
        INSERT INTO head
            SELECT log, name, topic_id, 0, 0, 0 FROM unnest(logs, names, topic_ids) AS new(log, name, topic_id)
            WHERE name IS NOT NULL ORDER BY log
            ON CONFLICT DO NOTHING;
    END IF;
    PERFORM FROM head WHERE log = ANY (logs) ORDER BY log FOR NO KEY UPDATE;
    IF array_remove(names, NULL) <> '{}' THEN
        SELECT json_build_array(head.log, head.name, new.name) INTO refused
            FROM unnest(logs, names, topic_ids) AS new(log, name, topic_id) JOIN head USING (log)
            WHERE (head.name, head.topic_id) <> (new.name, new.topic_id) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'FP004', MESSAGE = 'another log has this id', DETAIL = refused;
        END IF;
    END IF;

    SELECT json_agg(new.log) INTO refused
        FROM unnest(logs, expected, fixed, producers) AS new(log, expected, fixed, producers) LEFT JOIN head USING (log)
        WHERE head.log IS NULL OR new.expected <> head.next AND (
            new.fixed OR head.next < new.expected OR head.start > new.expected OR EXISTS (
                SELECT FROM entry
                WHERE entry.log = new.log AND entry.base + entry.count > new.expected
                    AND entry.base >= (
                        SELECT coalesce(max(base), new.expected) FROM entry AS first
                        WHERE first.log = new.log AND first.base <= new.expected)
                    AND entry.producer_ids && new.producers::bigint[]));
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'FP002', MESSAGE = 'rows of other brokers came first', DETAIL = refused;
    END IF;

    PERFORM fp_use(claimed, array_remove(objects, 0));

    WITH placed AS MATERIALIZED (
        SELECT head.next AS base, new.*,
            CASE WHEN new.expected IS NULL
                THEN (SELECT epoch FROM slot WHERE slot.slot = new.log % 256) ELSE new.own_epoch END AS leader_epoch
        FROM unnest(logs, expected, counts, kinds, leader_epochs, objects, positions, sizes, max_timestamps,
                    batch_counts, producers, header_bytes, aborted_bytes, inline_bytes, checksums)
            WITH ORDINALITY AS new(log, expected, count, kind, own_epoch, object, position, size_bytes, max_timestamp,
                                   batches, producers, heads, aborted, inline, checksum, n)
        JOIN head USING (log)
    ), inserted AS (
        INSERT INTO entry
            SELECT log, base, count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches,
                placed.producers::bigint[], heads, aborted, inline, checksum
            FROM placed
    ), advanced AS (
        UPDATE head SET next = head.next + placed.count, size_bytes = head.size_bytes + placed.size_bytes
            FROM placed WHERE head.log = placed.log
    )
    SELECT coalesce(array_agg(base ORDER BY n), '{}') INTO answer FROM placed;

    UPDATE broker SET commit_seq = seq, bases = answer, seen = clock_timestamp() WHERE id = me;
    RETURN answer;
END $$;

-- The arrays from `bases` on have one element for each new row, those from `snapshot_logs` on one for each snapshot.
CREATE FUNCTION fp_replace(
    me integer, my_incarnation bigint, my_session bigint, claimed bigint[],
    changed bigint, range_start bigint, range_end bigint, read bigint[], bases bigint[],
    counts bigint[], kinds smallint[], leader_epochs integer[], objects bigint[], positions bigint[], sizes bigint[],
    max_timestamps bigint[], batch_counts bigint[], producers text[], header_bytes bytea[], aborted_bytes bytea[],
    inline_bytes bytea[], checksums bigint[], snapshot_logs bigint[], snapshot_kinds text[],
    snapshot_bases bigint[], snapshot_values bytea[]
) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
    unused bigint[];
    found_bases bigint[];
    inside boolean;
    freed bigint;
BEGIN
    PERFORM fp_renew(me, my_incarnation, my_session);
    PERFORM FROM head WHERE log = changed AND next >= range_end FOR NO KEY UPDATE;
    inside := FOUND;
    SELECT coalesce(array_agg(base ORDER BY base), '{}'), inside AND coalesce(
            bool_and(base >= range_start AND base + count <= range_end), true)
        INTO found_bases, inside
        FROM entry
        WHERE log = changed AND base < range_end AND base + count > range_start AND range_start < range_end
            AND base >= (SELECT coalesce(max(base), range_start) FROM entry AS first
                         WHERE first.log = changed AND first.base <= range_start);
    IF NOT inside OR found_bases <> read THEN
        RAISE EXCEPTION USING ERRCODE = 'FP006', MESSAGE = format(
            'the rows of log %s in [%s, %s) are not those that the caller has read', changed, range_start, range_end);
    END IF;

    -- One call that locks all objects in order before two that find them locked.
    PERFORM FROM object
        WHERE id = ANY (claimed || objects || ARRAY(
            SELECT object FROM entry WHERE log = changed AND base >= range_start AND base < range_end))
        ORDER BY id FOR NO KEY UPDATE;
    PERFORM fp_use(claimed, array_remove(objects, 0));
    WITH deleted AS (
        DELETE FROM entry WHERE log = changed AND base >= range_start AND base < range_end
            RETURNING object, size_bytes)
    SELECT array_agg(object), coalesce(sum(size_bytes), 0) INTO unused, freed FROM deleted;
    PERFORM fp_unuse(unused);

    INSERT INTO entry
        SELECT changed, base, count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches,
            new.producers::bigint[], heads, aborted, inline, checksum
        FROM unnest(bases, counts, kinds, leader_epochs, objects, positions, sizes, max_timestamps, batch_counts,
                    producers, header_bytes, aborted_bytes, inline_bytes, checksums)
            AS new(base, count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches,
                   producers, heads, aborted, inline, checksum);
    UPDATE head SET size_bytes = head.size_bytes - freed + (SELECT coalesce(sum(n), 0) FROM unnest(sizes) AS new(n))
        WHERE log = changed;
    INSERT INTO snapshot AS held (log, kind, base, value)
        SELECT * FROM unnest(snapshot_logs, snapshot_kinds, snapshot_bases, snapshot_values)
        ON CONFLICT (log, kind) DO UPDATE SET base = excluded.base, value = excluded.value
            WHERE held.base <= excluded.base;
END $$;
