#!lua flags=no-writes
-- lately: which tasks of a group have ended lately: a step of a walk through those of all groups, the newest first.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group · 2 the same in JSON, as lines of the history have it that no script wrote · 3 how many to pass over
--          · 4 how many to look at, about
-- returns  { how many were looked at, 0 at the end; then, for each that may be of the group, its id and its line }
local from, most, newer = tonumber(ARGV[3]), tonumber(ARGV[4]), call('LLEN', K.lately_new)
local key = from < newer and K.lately_new or K.lately_old
if from >= newer then from = from - newer end
local page = call('LRANGE', key, -(from + most), -(from + 1))
local lines, found = #page > 0 and call('HMGET', K.history_new, unpack(page)) or {}, { #page }
local in_json, written = cjson.encode(ARGV[1]), ARGV[2]
for i = #page, 1, -1 do
  local line = lines[i] or call('HGET', K.history_old, page[i])
  if line and (string.find(line, written, 17, true) or string.find(line, in_json, 17, true)) then
    found[#found + 1] = page[i]
    found[#found + 1] = line
  end
end
return found
