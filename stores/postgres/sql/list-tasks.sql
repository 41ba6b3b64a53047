-- Returns at least one task of an owner, and at most $2 bytes of further tasks. $1: server, $3: owner_key, $4 and
-- $5: created and id of the task after which to begin, $6: number of tasks.
SELECT id, owner, version, created, expires, done, data FROM (
  SELECT *, sum(size) OVER page AS total, row_number() OVER page AS number FROM (
    SELECT * FROM {schema}.tasks WHERE server = $1 AND owner_key = $3 AND (created, id) > ($4, $5)
    ORDER BY created, id LIMIT $6) AS t
  WINDOW page AS (ORDER BY created, id)) AS p
WHERE number = 1 OR total <= $2 ORDER BY created, id
