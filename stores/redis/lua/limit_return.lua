-- Returns units of a lease. KEYS[1]: see limit_lease. ARGV: number of the period, units.
local used = redis.call('HMGET', KEYS[1], 'period', 'taken')
if used[1] == ARGV[1] then
  redis.call('HSET', KEYS[1], 'taken', string.format('%.0f', math.max(0, used[2] - ARGV[2])))
end
return 1
