-- Returns a login. $1: key.
SELECT value, 0::bigint FROM {schema}.logins WHERE key = $1 AND expires > now()
