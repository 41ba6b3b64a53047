-- Adds or replaces a subscription if the lease is held, and returns 1 then. $1: sender, $2: holder, $3: ID, $4: data.
INSERT INTO {schema}.webhooks AS w (sender, id, data)
  SELECT $1, $3, $4 FROM {schema}.webhook_senders WHERE sender = $1 AND holder = $2 AND ends > now()
  ON CONFLICT (sender, id) DO UPDATE SET data = excluded.data
  RETURNING 1
