-- Lists tasks of an owner. ARGV: digest of the owner, entry of the list after which to begin, number of tasks,
-- bytes of the page, bytes that the reply may contain. The page contains at least one task.
local ids, sizes = {}, 0
for _, entry in ipairs(redis.call('ZRANGEBYLEX', list, '(' .. ARGV[2], '(' .. ARGV[1] .. 'g', 'LIMIT', 0, ARGV[3])) do
  local id = string.sub(entry, #ARGV[1] + 17)
  local head = find(id)
  sizes = sizes + head[SIZE]
  if #ids > 0 and sizes > tonumber(ARGV[4]) then
    sizes = sizes - head[SIZE]
    break
  end
  ids[#ids + 1] = { id, head }
end
if sizes > tonumber(ARGV[5]) then
  return sizes
end
local reply = {}
for _, item in ipairs(ids) do
  append(reply, item[1], item[2])
end
return reply
