#!lua flags=allow-oom
-- note_action: note what an operator did. What one operator does to many tasks, step by step, is one note.
--
-- KEYS[1]  what all keys begin with that the partitions share
-- ARGV     1 an id that no other call has · 2 what was done, by whom and to what (JSON) · 3 to how many tasks, 0 for none
--          4 some of them (JSON) · 5 how many notes stay, the latest · 6 for how long a note takes further tasks in (µs)
--          7 how many tasks it names
-- returns  1; 0 if this call was noted already
local now, id, head, count, tasks, most = clock(), ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[7])
local notes = call('ZRANGE', K.actions, 0, 9, 'REV', 'WITHSCORES')
for i = 1, #notes, 2 do
  if sub(notes[i], 1, #id) == id then return 0 end
end
if count ~= '0' and notes[1] and now - notes[2] < tonumber(ARGV[6]) then
  local counted, named, of = string.match(notes[1], '\n(%d+)\n([^\n]*)\n(.*)$')
  if of == head then
    -- The ids of single acts are kept; of steps to more than a note names, the first ones.
    local before, more = cjson.decode(named), cjson.decode(tasks)
    if tonumber(counted) > #before or #before + #more <= most then
      for _, each in ipairs(more) do
        if #before < most then before[#before + 1] = each end
      end
      call('ZREM', K.actions, notes[1])
      count, tasks = format('%d', counted + count), #before > 0 and cjson.encode(before) or '[]'
    end
  end
end
call('ZADD', K.actions, digits(now), table.concat({ id, count, tasks, head }, '\n'))
call('ZREMRANGEBYRANK', K.actions, 0, -1 - ARGV[5])
return 1
