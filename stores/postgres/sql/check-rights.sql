-- Returns the rights that the user lacks. $1: schema, $2: whether no tables exist, $3: whether they are absent or old.
SELECT coalesce(array_agg(missing ORDER BY missing), '{}') FROM (
  SELECT 'CREATE ON DATABASE ' || quote_ident(current_database())
    WHERE $2 AND NOT has_database_privilege(current_database(), 'CREATE')
  UNION ALL
  SELECT privilege || ' ON SCHEMA ' || quote_ident(nspname)
    FROM pg_namespace, unnest(ARRAY['USAGE', 'CREATE']) privilege
    WHERE nspname = $1 AND (privilege = 'USAGE' OR $3) AND NOT has_schema_privilege(oid, privilege)
  UNION ALL
  SELECT privilege || ' ON TABLE ' || quote_ident(nspname) || '.' || quote_ident(relname)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace,
      unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
    WHERE nspname = $1 AND relkind = 'r' AND relname <> 'version' AND NOT has_table_privilege(pg_class.oid, privilege)
  UNION ALL
  SELECT 'ownership of ' || quote_ident(nspname) || '.' || quote_ident(relname)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relkind = 'r' AND $3 AND NOT pg_has_role(relowner, 'USAGE')
) AS lacks (missing)
