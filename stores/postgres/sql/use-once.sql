-- Records a use. $1: key, $2: time until the use is forgotten. Returns 0 if the key was used before.
WITH used AS (INSERT INTO {schema}.uses AS u (key, expires) VALUES ($1, now() + $2)
  ON CONFLICT (key) DO UPDATE SET expires = EXCLUDED.expires WHERE u.expires <= now() RETURNING 1)
SELECT count(*) FROM used
