-- Deletes tasks that are done and expired. ARGV: time, number of tasks. Returns the number of deleted tasks.
local ids = redis.call('ZRANGEBYSCORE', ends, '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  remove(id, find(id))
end
return #ids
