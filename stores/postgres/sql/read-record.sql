-- Returns a record and its version. $1: key.
SELECT value, version FROM {schema}.records WHERE key = $1 AND (expires IS NULL OR expires > now())
