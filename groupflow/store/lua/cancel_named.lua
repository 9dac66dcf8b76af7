#!lua flags=allow-oom
-- cancel_named: messages ask that tasks be cancelled. Each task is named by its message's id and the scope of that, as
-- `ids.lua` has them. One that waits or runs is noted, and daemons hear of it: it does not begin any more, or ends with
-- its attempt. May run again.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 who wants that, and why (JSON) · then two a message: id · scope
-- returns  a row for each message: { 'unknown' }; { 'over' }, of a task that has ended or is a dead letter; or
--          { 'requested', the task's id, its group ('' = plain) }
local refusal = other_layout()
if refusal then return refusal end

local now = clock()
local function ask(id)
  request_cancel(id, ARGV[1], now)
  local _, _, group = facts_of(id)
  return { 'requested', id, group }
end

local rows = {}
for i = 2, #ARGV, 2 do
  local row = { 'unknown' }
  for _, id in ipairs(names_of(ARGV[i], ARGV[i + 1])) do
    row = { 'over' }
    if call('HEXISTS', K.tasks, id) == 1 and not call('ZSCORE', K.dead, id) then
      row = ask(id)
      break
    end
  end
  rows[#rows + 1] = row
end
call('HINCRBY', K.count, 'taken', 0) -- a write: replicas are waited for, also where all was known before
return rows
