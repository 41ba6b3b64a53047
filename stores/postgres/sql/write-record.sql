-- Writes a record. $1: key, $2: version, 0 for a record that does not exist or expired, -1 for any version,
-- $3: value, NULL to delete the record, $4: time until the record expires, NULL for never. Returns 0 if the
-- version differs.
WITH put AS (INSERT INTO {schema}.records AS r (key, value, expires)
  SELECT $1, $3::bytea, now() + $4::interval WHERE $3::bytea IS NOT NULL AND $2::bigint <= 0
  ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, expires = EXCLUDED.expires, version = DEFAULT
  WHERE $2::bigint = -1 OR r.expires <= now() RETURNING 1),
updated AS (UPDATE {schema}.records SET value = $3::bytea, expires = now() + $4::interval, version = DEFAULT
  WHERE key = $1 AND version = $2::bigint AND $3::bytea IS NOT NULL RETURNING 1),
deleted AS (DELETE FROM {schema}.records
  WHERE key = $1 AND $3::bytea IS NULL AND ($2::bigint = -1 OR version = $2::bigint) RETURNING 1)
SELECT CASE
  WHEN EXISTS (SELECT FROM put) OR EXISTS (SELECT FROM updated) OR EXISTS (SELECT FROM deleted) THEN 1
  WHEN $3::bytea IS NULL AND $2::bigint <= 0 THEN 1
  ELSE 0 END
