-- Ends an update. $1: key, $2: holder, $3: value, NULL to delete the login, $4: time until the login expires.
-- Returns 0 if the lock was lost. The row remains with its holder, so the statement can be repeated.
WITH updated AS (UPDATE {schema}.logins SET value = $3, locked = '-infinity',
  expires = CASE WHEN $3::bytea IS NULL THEN now() ELSE now() + $4 END
  WHERE key = $1 AND holder = $2 RETURNING 1)
SELECT count(*) FROM updated
