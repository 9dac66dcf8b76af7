#!lua flags=allow-oom
-- hasten: tasks that stand aside until they are due are due now. Of a task that runs it is noted, and its next stage
-- has no delay: so a stage that begins later sees all that has happened before this call.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     one id each
-- returns  how many of them are there. One without a task state is left alone: it can't be delayed
local now, found, any_ready = clock(), 0, false
for _, id in ipairs(ARGV) do
  local task_state = K.task_state .. id
  if call('HEXISTS', K.tasks, id) == 1 and not call('ZSCORE', K.dead, id) then
    found = found + 1
    local facts = call('HMGET', task_state, 'sequence', 'group')
    local entry = (facts[1] or '') .. '+' .. id
    if facts[1] and leave_aside(entry, facts[2] or '') then
      remove_delay(id)
      call('HSET', task_state, 'due', digits(now), 'order', digits(now))
      put_back(entry, facts[2] or '', now)
      any_ready = true
    elseif facts[1] then
      call('HSET', task_state, 'hastened', 1)
    end
  end
end
if any_ready then wake() end
return found
