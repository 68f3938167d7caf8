-- Brokers find out that the database went back in time (history.py), leases end by a clock that steps back, and leader
-- epochs rise over a loss.

-- A life begins when a broker first connects to a newly started server. `position` is what the database had then.
CREATE TABLE life (
    number bigint PRIMARY KEY,
    token text NOT NULL DEFAULT gen_random_uuid()::text,
    server text NOT NULL,
    position bigint NOT NULL,
    is_reset boolean NOT NULL DEFAULT false
);
-- The number of this broker's transactions that are no commits.
ALTER TABLE broker ADD COLUMN beats bigint NOT NULL DEFAULT 0;
-- The life in which the slot got its owner.
ALTER TABLE slot ADD COLUMN life bigint;

-- It rises with every transaction that has an identity.
CREATE FUNCTION fp_position() RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT coalesce(sum(incarnation + session + commit_seq + beats), 0)::bigint FROM broker);
END $$;

-- What identifies a start of the server, and the tables: a restored dump has other ones.
CREATE FUNCTION fp_server() RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN format('%s %s', extract(epoch FROM pg_postmaster_start_time()), 'cluster'::regclass::oid);
END $$;

-- The lives from number `known` on, and the position now. Every connection of a broker begins with this, so nothing is
-- committed in a life before it is here. With a life all leases begin anew, by the clock of its server.
CREATE FUNCTION fp_lives(known bigint)
RETURNS TABLE (number bigint, token text, began_at bigint, position_now bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    newest bigint;
BEGIN
    IF (SELECT server FROM life ORDER BY number DESC LIMIT 1) IS DISTINCT FROM fp_server() THEN
        PERFORM FROM cluster FOR UPDATE;
        IF (SELECT server FROM life ORDER BY number DESC LIMIT 1) IS DISTINCT FROM fp_server() THEN
            newest := (SELECT coalesce(max(number), 0) FROM life);
            PERFORM FROM broker ORDER BY id FOR NO KEY UPDATE;
            UPDATE broker SET seen = clock_timestamp() WHERE newest > 0;
            INSERT INTO life (number, server, position) VALUES (newest + 1, fp_server(), fp_position());
        END IF;
    END IF;
    RETURN QUERY SELECT number, token, position, fp_position() FROM life WHERE number >= known ORDER BY number;
END $$;

-- A broker has found a loss, in a life of number `known` or after it. All brokers have to drop what they know, and join
-- again: no one can say which of them knows something of what was lost. Once for each start of the server.
CREATE FUNCTION fp_reset(known bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM cluster FOR UPDATE;
    IF EXISTS (SELECT FROM life WHERE server = fp_server() AND is_reset AND number > known) THEN
        RETURN;
    END IF;
    PERFORM FROM broker ORDER BY id FOR NO KEY UPDATE;
    UPDATE broker SET incarnation = incarnation + 1, has_left = true;
    UPDATE slot SET broker = NULL;
    -- It loses nothing, and connections that are there already learn of it late: no position is above this one.
    INSERT INTO life (number, server, position, is_reset)
        SELECT greatest(max(number), known) + 1, fp_server(), 9223372036854775807, true FROM life;
END $$;

-- The clock may have stepped back since leases were renewed: none lasts longer than one lease from now on. Rows that are
-- locked are being renewed.
CREATE FUNCTION fp_bound_leases() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE broker SET seen = clock_timestamp() WHERE id = ANY (ARRAY(
        SELECT id FROM broker WHERE seen > clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED));
END $$;

-- The same for claims, and for proposals with an answer.
CREATE FUNCTION fp_bound_claims() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE object SET claimed_at = clock_timestamp() WHERE id = ANY (ARRAY(
        SELECT id FROM object WHERE live = 0 AND claimed_at > clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED));
    UPDATE proposal SET proposed_at = clock_timestamp() WHERE id = ANY (ARRAY(
        SELECT id FROM proposal WHERE proposed_at > clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED));
END $$;

-- As version 1, and it counts.
CREATE OR REPLACE FUNCTION fp_renew(me integer, my_incarnation bigint, my_session bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE broker SET seen = clock_timestamp(), beats = beats + 1
        WHERE id = me AND incarnation = my_incarnation AND session = my_session;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'FP001', MESSAGE = format(
            'broker %s with incarnation %s and session %s is fenced', me, my_incarnation, my_session);
    END IF;
    PERFORM fp_bound_leases();
END $$;

-- As version 1, but a slot's epoch jumps when it is first taken in a life. Clients may have seen higher epochs than the
-- next one, if the database went back, and they ignore a leader with a lower one.
CREATE OR REPLACE FUNCTION fp_take_over(
    me integer, my_incarnation bigint, my_session bigint, wanted integer[], lease_ms bigint
) RETURNS TABLE (slot integer, broker integer, epoch integer)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    dead integer[];
    newest bigint;
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
    newest := (SELECT max(number) FROM life);
    UPDATE broker SET incarnation = incarnation + 1 WHERE id = ANY (dead);
    UPDATE slot s SET broker = NULL WHERE s.broker = ANY (dead);
    RETURN QUERY
        WITH taken AS (
            UPDATE slot s
                SET broker = me, life = newest, epoch = s.epoch + CASE WHEN coalesce(s.life, 1) < newest THEN 10000 ELSE 1 END
                WHERE s.slot = ANY (wanted) AND s.broker IS NULL
            RETURNING s.slot, s.broker, s.epoch)
        SELECT * FROM taken ORDER BY slot;
END $$;
