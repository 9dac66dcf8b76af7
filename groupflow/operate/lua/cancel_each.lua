#!lua flags=allow-oom
-- cancel_each: cancel tasks by their ids. Those that wait within a line are not looked for (see `cancel_lines`): of one
-- that is neither next nor elsewhere it is noted that it is to be cancelled, as of one that is claimed.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 who wants that, and why (JSON) · 2 the tasks (JSON): of each the id, its group ('' = plain) and its sequence
--          number, '' where its task state has that
-- returns  { how many have ended, the ids that are newly asked for }
local refusal = other_layout()
if refusal then return refusal end
local asked, now = ARGV[1], clock()
local said, ended, requested = cjson.decode(asked), 0, {}

local function entry_of(id, sequence)
  sequence = call('HGET', K.task_state .. id, 'sequence') or sequence
  if sequence == '' then return nil end
  return sequence .. (call('EXISTS', K.task_state .. id) == 1 and '+' or '.') .. id
end

for _, each in ipairs(cjson.decode(ARGV[2])) do
  local id, group, entry = each[1], each[2], entry_of(each[1], each[3])
  if call('HEXISTS', K.tasks, id) == 1 and not call('ZSCORE', K.dead, id) then
    if entry and leave_index(entry, group, now) then
      leave_burst(entry)
      end_as('cancelled', id, group, said, now)
      go_on(group, 1, now)
      ended = ended + 1
    elseif request_cancel(id, asked, now) then
      requested[#requested + 1] = id
    end
  end
end
return { ended, requested }
