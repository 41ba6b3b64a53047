-- Locks a login and returns its value and 1, or no row if another holder locks the login. $1: key, $2: holder,
-- $3: time until the lock ends. A new row expires at once, so a sweep deletes the row if the update does not end.
INSERT INTO {schema}.logins AS l (key, holder, locked, expires) VALUES ($1, $2, now() + $3, now())
ON CONFLICT (key) DO UPDATE SET holder = $2, locked = EXCLUDED.locked,
  value = CASE WHEN l.expires > now() THEN l.value END
WHERE l.locked <= now() RETURNING value, 1::bigint
