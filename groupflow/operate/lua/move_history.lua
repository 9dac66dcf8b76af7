#!lua
-- move_history: read some of the history, write it elsewhere, remove it. Dedup uses it, so each message id
-- stays known in the partition that its message would come to.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'out' · 2 'new' or 'old' · 3 cursor, '0' to begin · 4 how many to look at
--          or 1 'in' · 2 'new' or 'old' · 3 random text, for a salt if there is none yet · then three
--          each: id · scope · line
--          or 1 'done' · 2 'new' or 'old' · then the ids
-- returns  of 'out': { next cursor, rows of { id, group or '', the id that decides where a plain task lies,
--          scope, line } }; else nothing
local key = ARGV[2] == 'new' and K.history_new or K.history_old

local function scope_in(line) return string.match(line, '"(%x*)"%]$') end

if ARGV[1] == 'out' then
  local page, rows = call('HSCAN', key, ARGV[3], 'COUNT', ARGV[4]), {}
  for i = 1, #page[2], 2 do
    local id, line = page[2][i], page[2][i + 1]
    local is_sound, facts = pcall(cjson.decode, sub(line, 17))
    local group = is_sound and type(facts[3]) == 'string' and facts[3] or ''
    rows[#rows + 1] = { id, group, name_of(id, scope_in(line)), scope_in(line), line }
  end
  return { page[1], rows }
elseif ARGV[1] == 'in' then
  for i = 4, #ARGV, 3 do
    local id, scope, line = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local kept, place_of = call('HGET', K.history_new, id), K.history_new
    if not kept then kept, place_of = call('HGET', K.history_old, id), K.history_old end
    local owner
    if kept then
      owner = scope_in(kept)
    elseif call('HEXISTS', K.tasks, id) == 1 then
      owner = scope_of(id)
    end
    if kept and owner == scope then
      if sub(line, 1, 16) > sub(kept, 1, 16) then call('HSET', place_of, id, line) end
    elseif not is_known(id) then
      call('HSET', key, id, line)
    elseif owner ~= scope then
      call('HSETNX', K.segments, 'salt', ARGV[3])
      call('HSET', key, free_id(id, scope), line)
    end -- else it runs again under this id, so the id is known
  end
else
  for i = 3, #ARGV do call('HDEL', key, ARGV[i]) end
end
