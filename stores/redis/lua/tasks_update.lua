-- Replaces a task. ARGV: id, version, expires, done, digest of the owner, data. Returns 0 if the version
-- differs, and -1 if the owner has no such task.
local id, head = ARGV[1], find(ARGV[1])
if not head or head[DIGEST] ~= ARGV[5] then
  return -1
end
if head[VERSION] ~= ARGV[2] then
  return 0
end
local size = head[SIZE]
head[VERSION] = string.format('%.0f', head[VERSION] + 1)
head[EXPIRES], head[DONE], head[SIZE] = ARGV[3], ARGV[4], #ARGV[6]
write(id, head, ARGV[6])
for _, name in ipairs({ head[DIGEST], 'all' }) do
  redis.call('HINCRBY', sums, name .. ':b', head[SIZE] - size)
end
return 1
