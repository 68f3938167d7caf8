-- Version 2: many brokers own slots at once. They hand single slots over, are drained, and know a secret of the cluster.

ALTER TABLE cluster ADD COLUMN secret bytea;
ALTER TABLE broker ADD COLUMN draining boolean NOT NULL DEFAULT false;
-- The incarnation that serves clients: others may give slots to it.
ALTER TABLE broker ADD COLUMN ready_incarnation bigint;

CREATE FUNCTION fp_ready(me integer, my_incarnation bigint, my_session bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM fp_renew(me, my_incarnation, my_session);
    UPDATE broker SET ready_incarnation = incarnation WHERE id = me;
END $$;

-- The owner gives single slots up. It has committed everything that it appended to their logs, and appends no more.
CREATE FUNCTION fp_give_up(me integer, my_incarnation bigint, my_session bigint, given integer[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM cluster FOR UPDATE;
    PERFORM fp_renew(me, my_incarnation, my_session);
    UPDATE slot SET broker = NULL WHERE slot = ANY (given) AND broker = me;
END $$;

-- As version 1, but a guest's row has the leader epoch of the log's slot: a guest does not know it.
-- One commit. All arrays from `logs` on have one element for each row; `expected` is NULL for a guest, `names` is NULL
-- for a log that is there already; an element of `producer_ids` is the text of an array.
CREATE OR REPLACE FUNCTION fp_append(
    me integer, my_incarnation bigint, my_session bigint, seq bigint, claimed bigint[],
    logs bigint[], expected bigint[], fixed boolean[], names text[], topic_ids bytea[],
    counts bigint[], kinds smallint[], leader_epochs integer[], objects bigint[], positions bigint[], sizes bigint[],
    max_timestamps bigint[], batch_counts bigint[], producers text[], header_bytes bytea[], aborted_bytes bytea[],
    inline_bytes bytea[]
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
                    batch_counts, producers, header_bytes, aborted_bytes, inline_bytes)
            WITH ORDINALITY AS new(log, expected, count, kind, own_epoch, object, position, size_bytes, max_timestamp,
                                   batches, producers, heads, aborted, inline, n)
        JOIN head USING (log)
    ), inserted AS (
        INSERT INTO entry
            SELECT log, base, count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches,
                placed.producers::bigint[], heads, aborted, inline
            FROM placed
    ), advanced AS (
        UPDATE head SET next = head.next + placed.count, size_bytes = head.size_bytes + placed.size_bytes
            FROM placed WHERE head.log = placed.log
    )
    SELECT coalesce(array_agg(base ORDER BY n), '{}') INTO answer FROM placed;

    UPDATE broker SET commit_seq = seq, bases = answer, seen = clock_timestamp() WHERE id = me;
    RETURN answer;
END $$;
