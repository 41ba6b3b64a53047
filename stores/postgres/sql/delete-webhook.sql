-- Deletes a subscription if the lease is held, and returns 1 then. $1: sender, $2: holder, $3: ID.
WITH held AS (
  SELECT FROM {schema}.webhook_senders WHERE sender = $1 AND holder = $2 AND ends > now()
), deleted AS (
  DELETE FROM {schema}.webhooks WHERE sender = $1 AND id = $3 AND EXISTS (SELECT FROM held)
)
SELECT count(*) FROM held
