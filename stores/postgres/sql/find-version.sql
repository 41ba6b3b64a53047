-- Reports whether the table of the version exists. $1: schema. The function to_regclass can miss a table that
-- another process created during the transaction.
SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'version')
