-- Creates a task. ARGV: id, created, expires, done, digest of the owner, owner, data. Returns 0 if the id is
-- taken.
local id = ARGV[1]
if find(id) then
  return 0
end
write(id, { '1', ARGV[2], ARGV[3], ARGV[4], #ARGV[7], ARGV[5], ARGV[6] }, ARGV[7])
count(ARGV[5], 1, #ARGV[7])
return 1
