-- Behind the rules in scripts that take a waiting task out of its place.

local function line_of(group) return group == '' and K.plain or K.lane .. group end

-- The sequence number of the last task of a group's run.
local function end_of_run(group)
  local run, lock = call('HGET', K.runs, group), group ~= '' and call('GET', K.lock .. group)
  return run and lock and sub(lock, 1, 16) <= sub(run, 1, 16) and sub(run, 17, 32) or NEVER
end

-- Whether a task in a lane is of the run that ends there: it stays until it is done. One with a task state is of none: it
-- may have come back in front of it.
local function is_of_run(entry, last) return not has_state(entry) and sub(entry, 1, 16) <= last end

-- Removes an entry from where it waits, unless that is within a line. Returns whether it was there.
local function leave_index(entry, group, now)
  if leave_zset(entry, group, now) then return true end
  if is_of_run(entry, end_of_run(group)) then return false end
  return call('LINDEX', line_of(group), -1) == entry and call('RPOP', line_of(group)) ~= nil
end

-- So many tasks have left where they waited: their group goes on.
local function go_on(group, number, now)
  call('HINCRBY', K.count, group == '' and 'queued_plain' or 'queued_grouped', -number)
  if group == '' then return end
  call('ZREM', K.held, group) -- one may have been the head that its group was held for
  if place(group, now) then wake_for(group) end
end

-- How many of a line came with a sequence number, or later.
local function count_seen(line, last)
  return last == '' and 0 or call('LLEN', line) - count_older(line, tonumber(last))
end
