-- Version 3: compactions that others than brokers have computed, for the owner of the log to commit or refuse.
-- `value` is encoded by proposals.py, which also decides; `answer` is NULL until the owner has decided.

CREATE TABLE proposal (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    log bigint NOT NULL,
    value bytea NOT NULL,
    answer text,
    proposed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX proposal_open ON proposal (id) WHERE answer IS NULL;

-- The owner's answer. Answers older than a day are deleted: nobody waits for them any more.
CREATE FUNCTION fp_answer(me integer, my_incarnation bigint, my_session bigint, number bigint, decision text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM fp_renew(me, my_incarnation, my_session);
    UPDATE proposal SET answer = decision, value = '' WHERE id = number AND answer IS NULL;
    DELETE FROM proposal WHERE answer IS NOT NULL AND proposed_at < clock_timestamp() - interval '1 day';
END $$;
