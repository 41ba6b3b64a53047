-- Appends an event to the Redis stream of a session. KEYS[1]: the Redis stream. ARGV: name of the SSE
-- stream, number of the event, data, size that counts, bytes of all events to keep, age in milliseconds.
--
-- The id of an entry consists of the sum of all sizes so far and the server's time in milliseconds. The sum
-- always grows, even if the clock goes back, and a single trim by id discards the oldest events beyond the limit.
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local sum = tonumber(ARGV[4])
if last then
  sum = sum + tonumber(string.match(last[1], '^%d+'))
end
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('XADD', KEYS[1], 'MINID', '=', string.format('%.0f', math.max(sum - ARGV[5], 0)),
  string.format('%.0f-%.0f', sum, millis), 's', ARGV[1], 'n', ARGV[2], 'd', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return 1
