-- Returns a request state. $1: key.
SELECT value, 0::bigint FROM {schema}.states WHERE key = $1 AND expires > now()
