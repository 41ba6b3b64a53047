-- Reads a part of the Redis stream of a session, from its end. KEYS[1]: the Redis stream. ARGV: name of the SSE
-- stream, number of the event after which data is wanted, id of the entry before which to read or '+', age in
-- milliseconds, bytes that the reply may contain.
--
-- Returns the id before which to continue, or '' at the end, and the number and data of each event, the last event
-- first. The first event may exceed the size of the reply. An event up to the wanted number has empty data and ends
-- the search, so the events after the last event cost the same in a long stream.
local now = redis.call('TIME')
local oldest = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[4]
local reply, bytes, seen, before, count = { '' }, 0, 0, ARGV[3], 2
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[5])
while true do
  local entries = redis.call('XREVRANGE', KEYS[1], before, '-', 'COUNT', count)
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local data = fields[6]
    if fields[2] == ARGV[1] and tonumber(string.match(entry[1], '%d+$')) > oldest then
      if tonumber(fields[4]) <= after then
        reply[1] = ''
        reply[#reply + 1] = fields[4]
        reply[#reply + 1] = ''
        return reply
      end
      if #reply > 1 and bytes + #data > limit then
        return reply
      end
      bytes = bytes + #data
      reply[#reply + 1] = fields[4]
      reply[#reply + 1] = data
    end
    seen = seen + #data
    reply[1] = entry[1]
    before = '(' .. entry[1]
    if seen > 4 * limit then
      return reply
    end
  end
  if #entries < count then
    reply[1] = ''
    return reply
  end
  count = math.min(2 * count, 32)
end
