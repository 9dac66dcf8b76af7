-- In front of scripts that answer operators: names with their values, in a flat list. A name whose value is
-- nil is not in it.
local function named(facts)
  local list = {}
  for name, value in pairs(facts) do
    list[#list + 1] = name
    list[#list + 1] = value
  end
  return list
end

local function some(text) return text ~= '' and text or nil end

-- What lists show of a task state, by name.
local NOTED = { 'attempt', 'crashes', 'lost_leases', 'stage', 'due', 'errors', 'reason', 'latest', 'unknown', 'pool' }
local function task_state_of(id)
  local task_state, values = {}, call('HMGET', K.task_state .. id, unpack(NOTED))
  for i, name in ipairs(NOTED) do task_state[name] = values[i] or nil end
  if task_state.reason then task_state.reason = reason_of(id) end
  return named(task_state)
end
