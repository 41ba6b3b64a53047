-- Returns a task. ARGV: id, digest of the owner or nothing for any owner, bytes that the reply may contain.
local head, reply = find(ARGV[1]), {}
if not head or ARGV[2] ~= '' and head[DIGEST] ~= ARGV[2] then
  return reply
end
if head[SIZE] > tonumber(ARGV[3]) then
  return head[SIZE]
end
append(reply, ARGV[1], head)
return reply
