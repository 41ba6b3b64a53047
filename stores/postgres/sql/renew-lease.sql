-- Renews a lease, and ends the other leases of a server whose time is over, except those that another process
-- renews. Returns all holders, or no row if the lease ended. $1: server, $2: holder, $3: time until the lease ends.
WITH renewed AS (UPDATE {schema}.leases SET ends = now() + $3 WHERE server = $1 AND holder = $2 RETURNING 1),
ended AS (DELETE FROM {schema}.leases WHERE server = $1 AND holder IN (SELECT holder FROM {schema}.leases
  WHERE server = $1 AND holder <> $2 AND ends <= now() AND EXISTS (SELECT FROM renewed)
  FOR UPDATE SKIP LOCKED) RETURNING holder)
SELECT holder FROM {schema}.leases
WHERE server = $1 AND EXISTS (SELECT FROM renewed) AND holder NOT IN (SELECT holder FROM ended)
