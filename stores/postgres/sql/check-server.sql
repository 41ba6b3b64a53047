-- Returns the version of the server and whether it refuses writes.
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('transaction_read_only')::bool
