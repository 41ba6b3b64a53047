-- Returns at least one task that is not done, and at most $2 bytes of further tasks. $1: server, $3: id after
-- which to begin, $4: number of tasks.
SELECT id, owner, version, created, expires, done, data FROM (
  SELECT *, sum(size) OVER page AS total, row_number() OVER page AS number FROM (
    SELECT * FROM {schema}.tasks WHERE server = $1 AND NOT done AND id > $3 ORDER BY id LIMIT $4) AS t
  WINDOW page AS (ORDER BY id)) AS p
WHERE number = 1 OR total <= $2 ORDER BY id
