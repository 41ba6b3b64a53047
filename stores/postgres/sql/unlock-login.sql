-- Ends an update that changes nothing. $1: key, $2: holder.
UPDATE {schema}.logins SET locked = '-infinity' WHERE key = $1 AND holder = $2
