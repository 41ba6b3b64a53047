-- Replaces a task. $1: server, $2: id, $3: owner_key, $4: version, $5: expires, $6: done, $7: data. Returns 1, 0 if
-- the version differs, or -1 if the owner has no such task.
WITH found AS (SELECT FROM {schema}.tasks WHERE server = $1 AND id = $2 AND owner_key = $3),
changed AS (UPDATE {schema}.tasks
  SET version = version + 1, expires = $5, done = $6, size = length($7::bytea), data = $7::bytea, changed = now()
  WHERE server = $1 AND id = $2 AND owner_key = $3 AND version = $4 RETURNING 1)
SELECT CASE WHEN EXISTS (SELECT FROM changed) THEN 1 WHEN EXISTS (SELECT FROM found) THEN 0 ELSE -1 END
