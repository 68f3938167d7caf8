-- Version 4: the secret of the brokers is in a table of its own, which only a role with a broker's rights can read.
-- Until now every role that could read `cluster` knew the secret. So it is not copied: the first broker makes a new one.

ALTER TABLE cluster DROP COLUMN secret;

CREATE TABLE secret (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    value bytea NOT NULL
);
-- GRANT SELECT ON ALL TABLES also names this table. The policy shows no row to a role that cannot be a broker.
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY brokers_only ON secret USING (has_table_privilege('broker'::regclass, 'UPDATE'));
