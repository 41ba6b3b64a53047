-- Changes an entry. $1: kind, $2: key, $3: version, 0 for an entry that does not exist, $4: value, NULL to delete
-- the entry, $5: number of entries that a kind may contain. Returns 1, 0 if the version differs, or -1 if the
-- kind is full.
WITH full_kind AS (SELECT WHERE (SELECT count(*)
  FROM (SELECT FROM {schema}.entries WHERE kind = $1 AND $3::bigint = 0 AND $4::bytea IS NOT NULL LIMIT $5) AS e) >= $5),
known AS (SELECT FROM {schema}.entries WHERE kind = $1 AND key = $2),
added AS (INSERT INTO {schema}.entries (kind, key, value)
  SELECT $1, $2, $4::bytea WHERE $3::bigint = 0 AND $4::bytea IS NOT NULL AND NOT EXISTS (SELECT FROM full_kind)
  ON CONFLICT DO NOTHING RETURNING 1),
updated AS (UPDATE {schema}.entries SET value = $4::bytea, version = DEFAULT
  WHERE kind = $1 AND key = $2 AND version = $3::bigint AND $4::bytea IS NOT NULL RETURNING 1),
deleted AS (DELETE FROM {schema}.entries
  WHERE kind = $1 AND key = $2 AND version = $3::bigint AND $4::bytea IS NULL RETURNING 1)
SELECT CASE
  WHEN EXISTS (SELECT FROM added) OR EXISTS (SELECT FROM updated) OR EXISTS (SELECT FROM deleted) THEN 1
  WHEN EXISTS (SELECT FROM known) THEN 0
  WHEN $3::bigint = 0 AND $4::bytea IS NULL THEN 1
  WHEN EXISTS (SELECT FROM full_kind) THEN -1
  ELSE 0 END
