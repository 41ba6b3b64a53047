-- Creates a task. $1: server, $2: id, $3: owner_key, $4: owner, $5: created, $6: expires, $7: done, $8: data.
-- Returns 0 if the id is taken.
WITH created AS (INSERT INTO {schema}.tasks
  (server, id, owner_key, owner, version, created, expires, done, size, data, changed)
  VALUES ($1, $2, $3, $4, 1, $5, $6, $7, length($8::bytea), $8::bytea, now()) ON CONFLICT DO NOTHING RETURNING 1)
SELECT count(*) FROM created
