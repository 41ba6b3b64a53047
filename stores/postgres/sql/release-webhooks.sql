-- Ends the lease of a sender. $1: sender, $2: holder.
DELETE FROM {schema}.webhook_senders WHERE sender = $1 AND holder = $2
