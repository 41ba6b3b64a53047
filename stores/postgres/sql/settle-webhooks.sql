-- Waits for the changes of subscriptions that have begun.
DO $$ BEGIN LOCK TABLE {schema}.webhooks IN SHARE MODE; END $$
