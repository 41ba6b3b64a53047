-- Returns how many connections the server accepts, how many are in use, and how many the user can still open.
SELECT total, used, greatest(0, least(total - used,
  CASE WHEN rolconnlimit >= 0 THEN rolconnlimit - by_user END,
  CASE WHEN datconnlimit >= 0 THEN datconnlimit - by_database END))
FROM (SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS total,
    count(datid)::int AS used,
    (count(*) FILTER (WHERE usename = current_user))::int AS by_user,
    (count(*) FILTER (WHERE datname = current_database()))::int AS by_database
  FROM pg_stat_activity) counted,
  pg_roles, pg_database
WHERE rolname = current_user AND datname = current_database()
