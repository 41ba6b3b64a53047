-- Extends a lock. KEYS[1]: the lock. ARGV: token of the holder, milliseconds. Returns 0 if the lock was lost.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
