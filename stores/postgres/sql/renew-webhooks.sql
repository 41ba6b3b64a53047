-- Renews the lease of a sender that did not end, and returns 1. $1: sender, $2: holder, $3: time until the lease ends.
UPDATE {schema}.webhook_senders SET ends = now() + $3 WHERE sender = $1 AND holder = $2 AND ends > now() RETURNING 1
