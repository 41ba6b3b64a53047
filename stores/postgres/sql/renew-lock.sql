-- Extends the lock of a login. $1: key, $2: holder, $3: time until the lock ends.
UPDATE {schema}.logins SET locked = now() + $3 WHERE key = $1 AND holder = $2 AND locked > now()
