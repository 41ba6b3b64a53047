-- Ends an update. KEYS: the value, its lock. ARGV: token of the holder, what to do: keep, set or delete,
-- value, seconds until the value expires. Returns 0, and changes nothing, if the lock was lost. A repeated call
-- finds neither the lock nor another value than its own, and returns 1.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  local current = redis.call('GET', KEYS[1])
  if ARGV[2] == 'set' and current == ARGV[3] or ARGV[2] == 'delete' and not current then
    return 1
  end
  return 0
end
if ARGV[2] == 'set' then
  redis.call('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
elseif ARGV[2] == 'delete' then
  redis.call('DEL', KEYS[1])
end
return redis.call('DEL', KEYS[2])
