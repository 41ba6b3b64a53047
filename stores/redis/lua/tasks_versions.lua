-- Returns the versions of tasks, 0 for unknown tasks. ARGV: ids.
local versions = {}
for i, id in ipairs(ARGV) do
  local head = find(id)
  versions[i] = head and head[VERSION] or '0'
end
return versions
