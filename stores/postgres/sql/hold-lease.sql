-- Starts a lease. $1: server, $2: holder, $3: time until the lease ends.
INSERT INTO {schema}.leases (server, holder, ends) VALUES ($1, $2, now() + $3)
