-- Behind the prelude, in every script: tasks that wait since no living daemon knows their type (see `defer.lua`).

-- `unknown` has a clock of each such type: since when (µs) no living daemon has known it, 0 once one does and while tasks
-- still wait. `unknown_tasks:<type>` has the ids of the tasks that wait so, until they are claimed again, or gone; their
-- task state has the type as `unknown`. A clock with tasks is never forgotten.

-- Nearly always there is no clock: a script asks that once, and only for a task with a task state.
local may_be_unknown
local function leave_unknown(id)
  if may_be_unknown == nil then may_be_unknown = call('EXISTS', K.unknown) == 1 end
  local task_type = may_be_unknown and call('HGET', K.task_state .. id, 'unknown')
  if not task_type then return end
  call('HDEL', K.task_state .. id, 'unknown')
  call('ZREM', K.unknown_tasks .. task_type, id)
end
