#!lua flags=allow-oom
-- sweep (renamed): forget scopes and message ids of which no derived id is known any more. Each call goes on where the
-- last one ended.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many to look at, more or less
-- returns  how many were forgotten
if call('EXISTS', K.renamed) == 0 then return 0 end
local function is_known(id) return call('HEXISTS', K.tasks, id) == 1 or has_ended(id) end
local from = call('HGET', K.segments, 'renamed_from') or '0'
local page, forgotten = call('HSCAN', K.renamed, from, 'COUNT', ARGV[1]), 0
for i = 1, #page[2], 2 do
  local scope, id = string.match(page[2][i], '^(%x*) (.*)$')
  if not any_derived(scope, id, tonumber(page[2][i + 1]), is_known) then
    call('HDEL', K.renamed, page[2][i])
    forgotten = forgotten + 1
  end
end
call('HSET', K.segments, 'renamed_from', page[1])
return forgotten
