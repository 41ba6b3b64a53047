-- Returns the number and the bytes of tasks. $1: server, $2: owner_key, NULL for all owners.
SELECT count(*), coalesce(sum(size), 0)::bigint FROM {schema}.tasks
WHERE server = $1 AND ($2::bytea IS NULL OR owner_key = $2)
