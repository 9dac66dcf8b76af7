-- In front of every script, behind TAG (what all keys of the partition begin with), `call`, `byte`, `sub`, `format` and
-- the constants that the loader renders: the clock, the entry, and whom a script tells what. `K.lane` stands for a key
-- of that kind: the loader writes `TAG .. 'lane:'` in its place.

-- A task's cost in Lua is mostly its strings: Lua hashes each one, byte by byte, and finds it again or keeps it. So a
-- script reads what it looks at for each task as a number (`byte`) where it can.

-- Redis's clock in microseconds: scripts use no other.
local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Any whole number below 2^53, so that text sorts as numbers do.
local function digits(number) return format('%016d', number) end
local NEVER = '0000000000000000'

-- The sequence number of what comes now: above all before, however late the clock is.
local function next_sequence(now) return math.max(now, tonumber(call('HGET', K.count, 'sequence') or 0) + 1) end

local LIVES = byte('+')
local function sequence_of(entry) return tonumber(sub(entry, 1, 16)) end
local function id_of(entry) return sub(entry, 18) end
local function has_state(entry) return byte(entry, 17) == LIVES end
local function with_state(entry) return sub(entry, 1, 16) .. '+' .. sub(entry, 18) end

-- The order_time of a task: arrival less priority, or what its last settle set. Also the priority, whether an attempt
-- has failed, whether the task is a quarantined task, and its pool, if any.
local function order_of(entry)
  local sequence = sequence_of(entry)
  if not has_state(entry) then return sequence, 0, false, false, nil end
  local task_state = call('HMGET', K.task_state .. id_of(entry), 'order', 'priority', 'attempt', 'crashes', 'pool')
  local priority = tonumber(task_state[2]) or 0
  local order = tonumber(task_state[1]) or (sequence - priority)
  return order, priority, (tonumber(task_state[3]) or 1) > 1, (tonumber(task_state[4]) or 0) > 0, task_state[5] or nil
end

-- Tells every daemon, once a script, that something may be claimed now (a plain task, or of groups, if that is known),
-- or that a due time was set which may be the nearest.
local has_told = {}
local function tell(what)
  if not has_told[what] then call(PUBLISH, K.wake, what) end
  has_told[what] = true
end
local function wake() tell('ready') end
local function wake_for(group) tell(group == '' and 'plain' or 'grouped') end

-- A group is held back, '' for all: daemons have to ask again for what they claimed of it and have not begun.
local function hold_back(group) tell(group == '' and 'hold' or 'hold:' .. group) end

-- Tells of a due time written into an index, if it is the nearest one there: the daemon that promotes must hear of it.
local function wake_at_due(index, due)
  if tonumber(call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]) >= tonumber(digits(due)) then tell('due') end
end

-- A checkpoint is `S` (settled) and 16 digits of fence, or `L` (live), 16 digits of fence, 16 of the fence that the
-- slot settled before, 16 of since when (µs), 4 of the entry's length, the entry, and the group. So the last
-- settled fence is always there: a settle that runs again, since its first reply was lost, finds it and answers as it
-- did the first time.
local LIVE, SETTLED = byte('L'), byte('S')

local function settled_before(checkpoint)
  if not checkpoint then return NEVER end
  if byte(checkpoint) == SETTLED then return sub(checkpoint, 2, 17) end
  return sub(checkpoint, 18, 33)
end

-- The checkpoint of a new claim; `checkpoint` is the slot's one so far. Fence and since: 16 digits.
local lengths = {} -- as text, since most entries of a call are of one length
local function live(fence, checkpoint, since, entry, group)
  local length = lengths[#entry]
  if not length then
    length = format('%04d', #entry)
    lengths[#entry] = length
  end
  return 'L' .. fence .. settled_before(checkpoint) .. since .. length .. entry .. group
end

local function claim_of(checkpoint)
  if byte(checkpoint) ~= LIVE then return nil end
  local last = 53 + tonumber(sub(checkpoint, 50, 53))
  return {
    fence = sub(checkpoint, 2, 17),
    since = sub(checkpoint, 34, 49),
    entry = sub(checkpoint, 54, last),
    group = sub(checkpoint, last + 1),
  }
end
