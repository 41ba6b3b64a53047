-- Reads a lease. KEYS[1]: hash with the value and the token of its last holder, and the end in milliseconds. The hash
-- outlives the lease, so that tokens increase.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = redis.call('HMGET', KEYS[1], 'value', 'token', 'until')
local value, token, left = last[1], last[2], (tonumber(last[3]) or 0) - now
