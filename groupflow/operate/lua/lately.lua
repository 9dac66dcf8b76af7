#!lua flags=no-writes
-- lately: which tasks of groups have ended lately: a step of a walk through all of them, the newest first.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group · 2 the same in JSON, as lines of the history have it that no script wrote · 3 how many to pass over
--          · 4 how many to look at, about · 5 'drained': tasks of all groups that have 1 in their names, and in which
--          nothing waits, runs, is delayed, held, parked or paused; 'any': of all groups; '': those of the group
-- returns  { now, how many were looked at, 0 at the end, when the oldest of them ended (16 digits) or '' if that is
--          unknown; then, for each that may be sought, its id and its line }
local from, most, newer = tonumber(ARGV[3]), tonumber(ARGV[4]), call('LLEN', K.lately_new)
local key = from < newer and K.lately_new or K.lately_old
if from >= newer then from = from - newer end
local page = call('LRANGE', key, -(from + most), -(from + 1))
local lines, found = #page > 0 and call('HMGET', K.history_new, unpack(page)) or {}, { clock(), #page, '' }
local in_json, written, drained = cjson.encode(ARGV[1]), ARGV[2], {}
if ARGV[5] ~= '' then in_json, written = sub(in_json, 2, -2), sub(written, 2, -2) end

local function is_drained(line)
  local group = cjson.decode(sub(line, 17))[3]
  if type(group) ~= 'string' then return false end -- another task of its id ended since, without a group
  if drained[group] == nil then
    drained[group] = call('EXISTS', K.lane .. group, K.lock .. group) == 0 and call('HEXISTS', K.aside, group) == 0
      and call('HEXISTS', K.parked, group) == 0 and call('HEXISTS', K.paused, group) == 0
      and not (is_limiting() and limits().running(group) > 0)
  end
  return drained[group]
end

for i = #page, 1, -1 do
  local line = lines[i] or call('HGET', K.history_old, page[i])
  if line then
    found[3] = sub(line, 1, 16)
    local may_be = string.find(line, written, 17, true) or string.find(line, in_json, 17, true)
    if may_be and (ARGV[5] ~= 'drained' or is_drained(line)) then
      found[#found + 1] = page[i]
      found[#found + 1] = line
    end
  end
end
return found
