-- Behind `leaving` in scripts that cancel many tasks.

-- A waiting task has left its place: it ends as cancelled, as its request says or else `said` (a value for JSON).
local function end_cancelled(entry, group, said, now)
  local id = id_of(entry)
  leave_burst(entry)
  local asked = cancel_of(id)
  end_as('cancelled', id, group, asked and cjson.decode(asked) or said, now)
end

-- Notes that a claimed task is to be cancelled (JSON), and tells daemons. Returns whether that is new.
local function request_cancel(id, asked)
  if call('HSETNX', K.cancels, id, asked) == 0 then return false end
  tell('cancel:' .. id)
  return true
end
