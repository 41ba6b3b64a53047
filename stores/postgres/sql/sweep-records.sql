-- Deletes at most $1 expired rows, and returns their number. Rows that another process locks remain.
WITH due AS MATERIALIZED (SELECT key FROM {schema}.records
  WHERE expires <= now() ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED),
deleted AS (DELETE FROM {schema}.records WHERE key IN (SELECT key FROM due) RETURNING 1)
SELECT count(*) FROM deleted
