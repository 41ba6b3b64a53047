-- Renews a lease, and ends the other leases whose time is over. Returns all holders, or none if the lease ended.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return {}
end
redis.call('ZADD', KEYS[1], '+inf', ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
extend(ARGV[1], ARGV[2])
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf')
