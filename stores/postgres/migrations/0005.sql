-- Webhook subscriptions of event servers. The sender is a digest of its name.
CREATE TABLE {schema}.webhooks (
  sender bytea NOT NULL,
  id bytea NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sender, id)
);

-- Leases of the processes that deliver to the subscriptions of a sender, one at a time, by the clock of this server.
CREATE TABLE {schema}.webhook_senders (
  sender bytea PRIMARY KEY,
  holder text NOT NULL,
  ends timestamptz NOT NULL
);
