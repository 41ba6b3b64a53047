-- The beginning of the scripts of leases. KEYS[1]: sorted set of the holders, by the end of their lease in
-- milliseconds. ARGV: holder, milliseconds until the lease ends.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function extend(holder, millis)
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + millis), holder)
  redis.call('EXPIRE', KEYS[1], 365 * 24 * 3600) -- as the other keys of tasks
end
