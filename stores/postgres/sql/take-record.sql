-- Deletes a record and returns its value. $1: key.
DELETE FROM {schema}.records WHERE key = $1
RETURNING CASE WHEN expires IS NULL OR expires > now() THEN value END, 0::bigint
