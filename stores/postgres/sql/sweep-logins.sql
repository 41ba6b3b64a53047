-- Deletes at most $1 expired rows that no update locks, and returns their number.
WITH deleted AS (DELETE FROM {schema}.logins WHERE key IN (SELECT key FROM {schema}.logins
  WHERE expires <= now() AND locked <= now() ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING 1)
SELECT count(*) FROM deleted
