-- Returns subscriptions of a sender, $1, in the order of their IDs: at most $3 after the ID $2.
SELECT id, data FROM {schema}.webhooks WHERE sender = $1 AND id > $2 ORDER BY id LIMIT $3
