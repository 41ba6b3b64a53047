-- Deletes at most $1 leases of servers that no process has used for a day, and returns their number.
WITH due AS MATERIALIZED (SELECT server, holder FROM {schema}.leases
  WHERE ends <= now() - interval '1 day' LIMIT $1 FOR UPDATE SKIP LOCKED),
deleted AS (DELETE FROM {schema}.leases WHERE (server, holder) IN (SELECT server, holder FROM due) RETURNING 1)
SELECT count(*) FROM deleted
