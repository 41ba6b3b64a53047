-- Reads a part of the Redis stream of a session. KEYS[1]: the Redis stream. ARGV: name of the SSE stream,
-- number of the event after which data is wanted, id of the entry after which to read or '-', age in
-- milliseconds, bytes that the reply may contain.
--
-- Returns the id after which to continue, or '' at the end, and the number and data of each event. Events up
-- to the wanted number have empty data. The first event may exceed the size of the reply.
local now = redis.call('TIME')
local oldest = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[4]
local reply, bytes, seen, from = { '' }, 0, 0, ARGV[3]
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[5])
while true do
  local entries = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 32)
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local n, data = tonumber(fields[4]), fields[6]
    if fields[2] == ARGV[1] and tonumber(string.match(entry[1], '%d+$')) > oldest then
      if n <= after then
        data = ''
      end
      if #reply > 1 and bytes + #data > limit then
        return reply
      end
      bytes = bytes + #data
      reply[#reply + 1] = fields[4]
      reply[#reply + 1] = data
    end
    seen = seen + #fields[6]
    reply[1] = entry[1]
    from = '(' .. entry[1]
    if seen > 4 * limit then
      return reply
    end
  end
  if #entries < 32 then
    reply[1] = ''
    return reply
  end
end
