-- Deletes tasks that are done and expired, and returns their number. $1: server, $2: time, $3: number of tasks.
WITH due AS MATERIALIZED (SELECT id FROM {schema}.tasks
  WHERE server = $1 AND done AND expires <= $2 ORDER BY expires LIMIT $3 FOR UPDATE),
deleted AS (DELETE FROM {schema}.tasks WHERE server = $1 AND id IN (SELECT id FROM due) RETURNING 1)
SELECT count(*) FROM deleted
