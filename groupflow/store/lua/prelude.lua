-- In front of every script, behind TAG (what all keys of the partition begin with) and the constants that the loader
-- renders: the clock, the entry, and the one rule that says which state a group is in. `K.lane` stands for a key of
-- that kind: the loader writes `TAG .. 'lane:'` in its place.

local call = redis.call

-- A task's cost in Lua is mostly its strings: Lua hashes each one, byte by byte, and finds it again or keeps it. So a
-- script reads what it looks at for each task as a number (`byte`) where it can.
local byte, sub, format = string.byte, string.sub, string.format

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

-- A task of a pool waits for pullers, in indexes of that pool; each is named as the index whose place it takes. `pools`
-- has the names of all that ever had a task or a puller.
local pools_known
local function pools()
  pools_known = pools_known or call('HKEYS', K.pools)
  return pools_known
end

local function index_of(kind, pool) return TAG .. (pool and 'pool_' .. kind .. ':' .. pool or kind) end

-- Takes a group out of all pools' indexes except `stays`.
local function leave_pools(group, stays)
  for _, pool in ipairs(pools()) do
    for _, kind in ipairs({ 'ready', 'quarantined_groups' }) do
      local index = index_of(kind, pool)
      if index ~= stays then call('ZREM', index, group) end
    end
  end
end

-- Nearly always nothing is parked or paused: a script asks that once, and only when it has to know.
local may_withhold
local function is_withheld(group)
  if may_withhold == nil then may_withhold = call('EXISTS', K.parked, K.paused) > 0 end
  if not may_withhold then return false end
  return call('HEXISTS', K.parked, group) == 1 or call('HEXISTS', K.paused, group) == 1
end

-- Nor does a quarantined task wait: a script asks that once too.
local may_quarantine
local function is_in_quarantine(group)
  if may_quarantine == nil then may_quarantine = call('EXISTS', K.quarantined_groups) == 1 end
  return may_quarantine and call('ZSCORE', K.quarantined_groups, group)
end

-- Whether anything has limits here, and the rules for that: see `limits.lua` and `tenants.lua`.
local is_limiting, limits, tenants

-- Whether a ready group, a pause of everything or a recovery goes before the next task of a group that runs.
local function is_beside_others()
  return call('EXISTS', K.ready, K.quarantined_groups, K.paused_all, K.recovering) > 0
end

-- Takes a group out of the index in which it is ready: it is in at most one of two, or of two for each pool.
local function unready(group, now)
  if is_limiting() then tenants().leave(group, now) end
  leave_pools(group)
  call('ZREM', K.ready, group)
  if is_in_quarantine(group) then call('ZREM', K.quarantined_groups, group) end
end

-- Puts a group in which one more task may run into the one state that its facts call for. A group whose head is a
-- quarantined task is ready too, in an index of its own, so that no ordinary claim meets it. Returns true where it may
-- now be claimed.
local function place_unlocked(group, now)
  local head = call('LINDEX', K.lane .. group, -1)
  if not head or is_withheld(group) then
    unready(group, now)
    call('ZREM', K.held, group)
    return false
  end
  local order, priority, failed, is_quarantined, pool = order_of(head)
  local due = has_state(head) and tonumber(call('HGET', K.task_state .. id_of(head), 'due') or nil) or 0
  if is_limiting() then
    local free = limits().free_at(group, head, now)
    if not free then -- the end of one that runs places it again
      unready(group, now)
      call('ZREM', K.held, group)
      return false
    end
    due = math.max(due, free)
  end
  if due > now then
    unready(group, now)
    call('ZADD', K.held, digits(due), group)
    wake_at_due(K.held, due)
    return false
  end
  if has_state(head) or is_limiting() then call('ZREM', K.held, group) end
  local index = index_of(is_quarantined and 'quarantined_groups' or 'ready', pool)
  leave_pools(group, index)
  -- A group that is ready already keeps its turn, even if a task comes back into it.
  local score = digits(ORDER == 'fair' and (failed and now or (now - priority)) or order)
  if is_limiting() then
    local may_start = tenants().line_up(group, head, score, is_quarantined, now)
    if may_start ~= nil then return may_start end
  end
  if pool then
    call('ZREM', K.ready, group)
    call('ZREM', K.quarantined_groups, group)
    tell('pool')
  elseif is_quarantined then
    call('ZREM', K.ready, group)
    may_quarantine = true
  elseif is_in_quarantine(group) then
    call('ZREM', K.quarantined_groups, group)
  end
  if ORDER == 'fair' then
    call('ZADD', index, 'LT', score, group)
  else
    call('ZADD', index, score, group)
  end
  return true
end

-- The same for a group that may be running. A script that changes a fact (the lock, the lane, a hold) calls one of the
-- two right after. Beside these, only `place_freed` and tenants' turns put a group into `ready`, `quarantined_groups`
-- or `held`.
local function place(group, now)
  if call('EXISTS', K.lock .. group) == 1 and not is_limiting() then return false end
  return place_unlocked(group, now)
end

-- Puts an entry into its group's lane where its arrival belongs: a lane is in order of arrival, even where a task
-- comes back. Nearly always that is in front.
local function insert(lane, entry)
  local sequence = sequence_of(entry)
  local head = call('LINDEX', lane, -1)
  if not head or sequence_of(head) > sequence then return call('RPUSH', lane, entry) end
  -- Counts how many are older, from the head: halving, so about twenty looks at a million. (LINSERT then walks the list
  -- from its young end, in C.)
  local older, most = 1, call('LLEN', lane)
  while older < most do
    local middle = math.floor((older + most + 1) / 2)
    if sequence_of(call('LINDEX', lane, -middle)) < sequence then older = middle else most = middle - 1 end
  end
  local newer = call('LINDEX', lane, -(older + 1))
  if newer then return call('LINSERT', lane, 'AFTER', newer, entry) end
  return call('LPUSH', lane, entry)
end

-- Puts a task back to its place in its group, or as the next plain one.
local function put_back(entry, group, now)
  if group ~= '' then
    insert(K.lane .. group, entry)
    return place(group, now)
  end
  local order, _, _, is_quarantined, pool = order_of(entry)
  if is_limiting() and tenants().line_up_plain(entry, digits(order), is_quarantined, now) then return true end
  if has_state(entry) then
    call('ZADD', index_of(is_quarantined and 'quarantined_plain' or 'ordered', pool), digits(order), entry)
    if pool then tell('pool') end
  else
    call('RPUSH', K.plain, entry)
  end
  return true
end

-- What Redis may hold for long is counted in bytes: `delayed_bytes` of tasks that wait for a message's delay, theirs or
-- one ahead; `dead_bytes` of dead letters that are here whole. A task state notes what the task adds, under the same
-- name; that is taken off again, once.
local function put_on(total, id, bytes)
  call('HSET', K.task_state .. id, total, bytes)
  call('HINCRBY', K.count, total, bytes)
end

local function take_off(total, id)
  local bytes = call('HGET', K.task_state .. id, total)
  if not bytes then return end
  call('HDEL', K.task_state .. id, total)
  call('HINCRBY', K.count, total, -bytes)
end

-- A tenant is an application and one of its tenants: 8 digits of scope (see `ids.lua`), and the tenant's name.
local NO_SCOPE = '--------' -- the scope of a task without one
local function tenant_named(name, scope) return (scope and scope ~= '' and scope or NO_SCOPE) .. (name or '') end

-- `carried_bytes` counts the stages, contexts and failed attempts of tasks that wait or run, and `carried` the same by
-- tenant. A task state notes both; that is taken off again, once.
local CARRIED = { 'stage', 'context', 'errors' }

-- Nearly always no task carries anything: a script asks that once, and only for a task with a task state.
local may_carry
local function put_down(id)
  if may_carry == nil then may_carry = call('EXISTS', K.carried) == 1 end
  local whose = may_carry and call('HGET', K.task_state .. id, 'carried_for')
  if not whose then return end
  local bytes = call('HGET', K.task_state .. id, 'carried_bytes')
  call('HDEL', K.task_state .. id, 'carried_for')
  take_off('carried_bytes', id)
  if call('HINCRBY', K.carried, whose, -bytes) <= 0 then call('HDEL', K.carried, whose) end
end

-- Call it once the texts are written: it replaces what the task carried before.
local function carry(id, tenant)
  put_down(id)
  local bytes = 0
  for _, text in ipairs(CARRIED) do bytes = bytes + call('HSTRLEN', K.task_state .. id, text) end
  if bytes == 0 then return end
  put_on('carried_bytes', id, bytes)
  call('HSET', K.task_state .. id, 'carried_for', tenant)
  call('HINCRBY', K.carried, tenant, bytes)
  may_carry = true
end

-- A task that waited or ran is over: deletes its task state, if any.
local function end_state(id)
  put_down(id)
  call('DEL', K.task_state .. id)
end

-- Bytes that a delayed task takes in Redis beside its envelope, as measured: its task state, and its places in lists
-- and indexes.
local DELAY_COSTS = 768

-- A shard of a scan that found nothing sleeps: it is queued, but no work that waits. So `asleep` counts it until it is
-- due, by its time or an operator, or is gone.
local function rouse(id)
  if sub(id, 1, 5) == 'scan:' then take_off('asleep', id) end
end

-- A task waits for no delay any more: it is due, runs, or is gone.
local function remove_delay(id)
  call('ZREM', K.late, id)
  take_off('delayed_bytes', id)
  rouse(id)
end

-- Bytes that a dead letter takes in Redis beside its texts, as measured: its task state, and its places in lists and
-- indexes. Its id stands in four of them.
local LETTER_COSTS = 1360
local LETTER_TEXTS = { 'group', 'type', 'tenant', 'reason', 'kind', 'errors', 'stage', 'context' }

-- An archived letter's reason stands in pieces: Redis keeps a hash of short values in half the memory.
local function reason_of(id)
  local pieces = call('HMGET', K.task_state .. id, 'reason', 'reason_2', 'reason_3', 'reason_4')
  return (pieces[1] or '') .. (pieces[2] or '') .. (pieces[3] or '') .. (pieces[4] or '')
end

local function remove_reason(id)
  call('HDEL', K.task_state .. id, 'reason', 'reason_2', 'reason_3', 'reason_4')
end

-- A dead letter begins, its task state written: all that it holds counts, and all but a stub may leave Redis.
local function add_letter(id, now)
  local bytes = LETTER_COSTS + 4 * #id + call('HSTRLEN', K.tasks, id)
  for _, text in ipairs(LETTER_TEXTS) do bytes = bytes + call('HSTRLEN', K.task_state .. id, text) end
  call('ZADD', K.dead, digits(now), id)
  call('ZADD', K.bodies, digits(now), id)
  put_on('dead_bytes', id, bytes)
end

-- The letter's body leaves, or the letter ends.
local function remove_body(id)
  call('ZREM', K.bodies, id)
  call('ZREM', K.staying, id)
  take_off('dead_bytes', id)
end
