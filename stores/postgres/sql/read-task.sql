-- Returns a task. $1: server, $2: id, $3: owner_key.
SELECT id, owner, version, created, expires, done, data FROM {schema}.tasks
WHERE server = $1 AND id = $2 AND owner_key = $3
