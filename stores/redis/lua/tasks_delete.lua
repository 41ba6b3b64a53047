-- Deletes a task. ARGV: id, digest of the owner.
local head = find(ARGV[1])
if head and head[DIGEST] == ARGV[2] then
  remove(ARGV[1], head)
end
return 1
