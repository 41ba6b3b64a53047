-- Deletes at most $1 expired rows that no update locks, and returns their number.
WITH due AS MATERIALIZED (SELECT key FROM {schema}.logins
  WHERE expires <= now() AND locked <= now() ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED),
deleted AS (DELETE FROM {schema}.logins WHERE key IN (SELECT key FROM due) RETURNING 1)
SELECT count(*) FROM deleted
