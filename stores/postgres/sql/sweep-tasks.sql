-- Deletes at most $1 tasks that expired and changed more than a year ago, and returns their number.
WITH due AS MATERIALIZED (SELECT server, id FROM {schema}.tasks
  WHERE expires <= (extract(epoch FROM now() - interval '1 year') * 1000)::bigint
  AND changed <= now() - interval '1 year' ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED),
deleted AS (DELETE FROM {schema}.tasks WHERE (server, id) IN (SELECT server, id FROM due) RETURNING 1)
SELECT count(*) FROM deleted
