-- Version 1: all tables of a cluster, and its transactions as functions, so that each is one round trip.
-- tests/kit/sim_engine.py specifies the same transactions in Python; engine.py explains the words.
--
-- Locks are taken in this order, so there is no deadlock: the row of `cluster` (only by what changes the owners of
-- slots), brokers by id, heads by id, objects by id. Every statement of a function sees what was committed before it
-- began (READ COMMITTED), so it sees all that was done under a lock that the function waited for.
--
-- The plans of the functions must not depend on statistics: a plan made while a table was empty would read all of it
-- later. Hence no sequential scans, only nested loops over the primary keys, and plans made once.

CREATE TABLE cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    schema_version integer NOT NULL,
    id text
);
INSERT INTO cluster (schema_version) VALUES (1);

CREATE TABLE broker (
    id integer PRIMARY KEY,
    incarnation bigint NOT NULL,
    session bigint NOT NULL,
    commit_seq bigint NOT NULL,
    bases bigint[] NOT NULL,
    seen timestamptz NOT NULL,
    has_left boolean NOT NULL,
    addresses text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE slot (slot integer PRIMARY KEY, broker integer, epoch integer NOT NULL DEFAULT 0);
INSERT INTO slot (slot) SELECT generate_series(0, 255);

CREATE TABLE head (
    log bigint PRIMARY KEY,
    name text NOT NULL,
    topic_id bytea NOT NULL,
    next bigint NOT NULL,
    start bigint NOT NULL,
    size_bytes bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE entry (
    log bigint,
    base bigint,
    count bigint NOT NULL,
    kind smallint NOT NULL,
    leader_epoch integer NOT NULL,
    object bigint NOT NULL,
    position bigint NOT NULL,
    size_bytes bigint NOT NULL,
    max_timestamp bigint NOT NULL,
    batches bigint NOT NULL,
    producer_ids bigint[] NOT NULL,
    heads bytea,
    aborted bytea NOT NULL,
    inline bytea,
    PRIMARY KEY (log, base)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
-- Batches come compressed, if they are to be compressed.
ALTER TABLE entry ALTER COLUMN inline SET STORAGE EXTERNAL;

-- state: 0 claimed, 1 live, 2 doomed; live: the number of entries that refer to it
CREATE TABLE object (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state smallint NOT NULL DEFAULT 0,
    live bigint NOT NULL DEFAULT 0,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX object_unused ON object (id) WHERE live = 0;

CREATE TABLE snapshot (
    log bigint,
    kind text,
    base bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (log, kind)
);

-- The fence of all transactions but commits; it renews the lease.
CREATE FUNCTION fp_renew(me integer, my_incarnation bigint, my_session bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE broker SET seen = clock_timestamp()
        WHERE id = me AND incarnation = my_incarnation AND session = my_session;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'FP001', MESSAGE = format(
            'broker %s with incarnation %s and session %s is fenced', me, my_incarnation, my_session);
    END IF;
END $$;

CREATE FUNCTION fp_join(me integer, my_addresses text, lease_ms bigint)
RETURNS TABLE (incarnation bigint, session bigint, commit_seq bigint, bases bigint[])
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    old broker;
    idle_ms bigint;
BEGIN
    PERFORM FROM cluster FOR UPDATE;
    SELECT * INTO old FROM broker WHERE id = me FOR NO KEY UPDATE;
    idle_ms := extract(epoch FROM clock_timestamp() - old.seen) * 1000;
    IF NOT old.has_left AND idle_ms < lease_ms THEN
        RAISE EXCEPTION USING ERRCODE = 'FP005', MESSAGE = format('broker %s is alive', me),
            DETAIL = json_build_array(old.addresses, idle_ms);
    END IF;
    UPDATE slot SET broker = NULL WHERE broker = me;
    RETURN QUERY
        INSERT INTO broker AS held VALUES (me, 1, 1, 0, '{}', clock_timestamp(), false, my_addresses)
        ON CONFLICT (id) DO UPDATE SET
            incarnation = held.incarnation + 1, session = held.session + 1, seen = excluded.seen, has_left = false,
            addresses = excluded.addresses
        RETURNING held.incarnation, held.session, held.commit_seq, held.bases;
END $$;

CREATE FUNCTION fp_take_over(me integer, my_incarnation bigint, my_session bigint, wanted integer[], lease_ms bigint)
RETURNS TABLE (slot integer, broker integer, epoch integer)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    dead integer[];
BEGIN
    PERFORM FROM cluster FOR UPDATE;
    -- Waits for a commit of an owner that is under way; the next statement sees that it renewed its lease.
    PERFORM FROM broker
        WHERE id = me OR id IN (SELECT s.broker FROM slot s WHERE s.slot = ANY (wanted))
        ORDER BY id FOR NO KEY UPDATE;
    PERFORM fp_renew(me, my_incarnation, my_session);
    dead := ARRAY(
        SELECT DISTINCT s.broker FROM slot s LEFT JOIN broker b ON b.id = s.broker
        WHERE s.slot = ANY (wanted) AND s.broker <> me AND (
            b.id IS NULL OR b.has_left OR extract(epoch FROM clock_timestamp() - b.seen) * 1000 >= lease_ms));
    UPDATE broker SET incarnation = incarnation + 1 WHERE id = ANY (dead);
    UPDATE slot s SET broker = NULL WHERE s.broker = ANY (dead);
    RETURN QUERY
        WITH taken AS (
            UPDATE slot s SET broker = me, epoch = s.epoch + 1 WHERE s.slot = ANY (wanted) AND s.broker IS NULL
            RETURNING s.slot, s.broker, s.epoch)
        SELECT * FROM taken ORDER BY slot;
END $$;

CREATE FUNCTION fp_release(me integer, my_incarnation bigint, my_session bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM cluster FOR UPDATE;
    PERFORM fp_renew(me, my_incarnation, my_session);
    UPDATE broker SET incarnation = incarnation + 1, has_left = true WHERE id = me;
    UPDATE slot SET broker = NULL WHERE broker = me;
END $$;

-- Rows refer to objects, which a commit lists as claimed, or which are live already. An object may occur many times in
-- `used`.
CREATE FUNCTION fp_use(claimed bigint[], used bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
    lost bigint[];
BEGIN
    IF claimed = '{}' AND used = '{}' THEN
        RETURN;
    END IF;
    PERFORM FROM object WHERE id = ANY (claimed || used) ORDER BY id FOR NO KEY UPDATE;
    lost := ARRAY(
        SELECT DISTINCT needed.id FROM unnest(claimed || used) AS needed(id) LEFT JOIN object USING (id)
        WHERE state IS DISTINCT FROM CASE WHEN needed.id = ANY (claimed) THEN 0 ELSE 1 END);
    IF lost <> '{}' THEN
        RAISE EXCEPTION USING ERRCODE = 'FP003', MESSAGE = format('objects %s are not claimed any more', lost);
    END IF;
    UPDATE object SET state = 1, live = live + references_.n
        FROM (SELECT id, count(*) FILTER (WHERE refers) AS n
              FROM (SELECT unnest(used), true UNION ALL SELECT unnest(claimed), false) AS needed(id, refers)
              GROUP BY id) AS references_
        WHERE object.id = references_.id;
END $$;

CREATE FUNCTION fp_unuse(used bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
BEGIN
    PERFORM FROM object WHERE id = ANY (used) ORDER BY id FOR NO KEY UPDATE;
    UPDATE object SET live = live - references_.n
        FROM (SELECT id, count(*) AS n FROM unnest(used) AS needed(id) GROUP BY id) AS references_
        WHERE object.id = references_.id;
END $$;

-- One commit. All arrays from `logs` on have one element for each row; `expected` is NULL for a guest, `names` is NULL
-- for a log that is there already; an element of `producer_ids` is the text of an array.
CREATE FUNCTION fp_append(
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
        SELECT head.next AS base, new.*
        FROM unnest(logs, counts, kinds, leader_epochs, objects, positions, sizes, max_timestamps, batch_counts,
                    producers, header_bytes, aborted_bytes, inline_bytes)
            WITH ORDINALITY AS new(log, count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches,
                                   producers, heads, aborted, inline, n)
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

CREATE FUNCTION fp_raise_start(
    me integer, my_incarnation bigint, my_session bigint, logs bigint[], starts bigint[]
) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
    unused bigint[];
BEGIN
    PERFORM fp_renew(me, my_incarnation, my_session);
    PERFORM FROM head WHERE log = ANY (logs) ORDER BY log FOR NO KEY UPDATE;
    UPDATE head SET start = greatest(head.start, least(head.next, wanted.start))
        FROM (SELECT log, max(start) AS start FROM unnest(logs, starts) AS new(log, start) GROUP BY log) AS wanted
        WHERE head.log = wanted.log;
    WITH deleted AS (
        DELETE FROM entry USING head
            WHERE head.log = ANY (logs) AND entry.log = head.log
                AND entry.base < head.start AND entry.base + entry.count <= head.start
            RETURNING entry.log, entry.object, entry.size_bytes
    ), shrunk AS (
        UPDATE head SET size_bytes = head.size_bytes - gone.size_bytes
            FROM (SELECT log, sum(size_bytes) AS size_bytes FROM deleted GROUP BY log) AS gone
            WHERE head.log = gone.log
    )
    SELECT array_agg(object) INTO unused FROM deleted;
    PERFORM fp_unuse(unused);
END $$;

-- The arrays from `bases` on have one element for each new row, those from `snapshot_logs` on one for each snapshot.
CREATE FUNCTION fp_replace(
    me integer, my_incarnation bigint, my_session bigint, claimed bigint[],
    changed bigint, range_start bigint, range_end bigint, read bigint[], bases bigint[],
    counts bigint[], kinds smallint[], leader_epochs integer[], objects bigint[], positions bigint[], sizes bigint[],
    max_timestamps bigint[], batch_counts bigint[], producers text[], header_bytes bytea[], aborted_bytes bytea[],
    inline_bytes bytea[], snapshot_logs bigint[], snapshot_kinds text[], snapshot_bases bigint[], snapshot_values bytea[]
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
            new.producers::bigint[], heads, aborted, inline
        FROM unnest(bases, counts, kinds, leader_epochs, objects, positions, sizes, max_timestamps, batch_counts,
                    producers, header_bytes, aborted_bytes, inline_bytes)
            AS new(base, count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches,
                   producers, heads, aborted, inline);
    UPDATE head SET size_bytes = head.size_bytes - freed + (SELECT coalesce(sum(n), 0) FROM unnest(sizes) AS new(n))
        WHERE log = changed;
    INSERT INTO snapshot AS held (log, kind, base, value)
        SELECT * FROM unnest(snapshot_logs, snapshot_kinds, snapshot_bases, snapshot_values)
        ON CONFLICT (log, kind) DO UPDATE SET base = excluded.base, value = excluded.value
            WHERE held.base <= excluded.base;
END $$;

CREATE FUNCTION fp_drop(me integer, my_incarnation bigint, my_session bigint, logs bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    unused bigint[];
BEGIN
    PERFORM fp_renew(me, my_incarnation, my_session);
    PERFORM FROM head WHERE log = ANY (logs) ORDER BY log FOR UPDATE;
    DELETE FROM head WHERE log = ANY (logs);
    DELETE FROM snapshot WHERE log = ANY (logs);
    WITH deleted AS (DELETE FROM entry WHERE log = ANY (logs) RETURNING object)
    SELECT array_agg(object) INTO unused FROM deleted;
    PERFORM fp_unuse(unused);
END $$;

CREATE FUNCTION fp_doomed(idle_ms bigint, at_most bigint) RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- What another transaction has locked is in use, or being marked.
    UPDATE object SET state = 2 WHERE id = ANY (ARRAY(
        SELECT id FROM object
        WHERE live = 0 AND (
            state = 1 OR state = 0 AND extract(epoch FROM clock_timestamp() - claimed_at) * 1000 >= idle_ms)
        ORDER BY id LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED));
    RETURN QUERY SELECT id FROM object WHERE live = 0 AND state = 2 ORDER BY id LIMIT at_most;
END $$;

CREATE FUNCTION fp_forget(unused bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM object WHERE id = ANY (unused) AND state = 2 ORDER BY id FOR UPDATE;
    DELETE FROM object WHERE id = ANY (unused) AND state = 2;
END $$;
