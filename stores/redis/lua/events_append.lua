-- Appends an event to the Redis stream of a session. KEYS[1]: the Redis stream. ARGV: name of the SSE
-- stream, number of the event, data, bytes that count besides name and data, bytes of all events to keep, age
-- in milliseconds.
--
-- The id of an entry is the sum of all sizes before it and the time of the server in milliseconds. Sums only
-- grow, whatever the clock does, and one trim by id discards the oldest events beyond the limit.
local function size(stream, data)
  return ARGV[4] + #stream + #data
end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local sum = 0
if last then
  sum = string.match(last[1], '^%d+') + size(last[2][2], last[2][6])
end
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('XADD', KEYS[1], 'MINID', '=', string.format('%.0f', math.max(sum + size(ARGV[1], ARGV[3]) - ARGV[5], 0)),
  string.format('%.0f-%.0f', sum, millis), 's', ARGV[1], 'n', ARGV[2], 'd', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return 1
