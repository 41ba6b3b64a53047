-- Starts the lease of a sender unless another process holds it, and returns 1. $1: sender, $2: holder, $3: time until
-- the lease ends.
INSERT INTO {schema}.webhook_senders AS s (sender, holder, ends) VALUES ($1, $2, now() + $3)
  ON CONFLICT (sender) DO UPDATE SET holder = excluded.holder, ends = excluded.ends
    WHERE s.ends <= now() OR s.holder = excluded.holder
  RETURNING 1
