-- Behind the prelude, in every script: the one rule that says which state a group is in, and what goes back to its
-- place.

-- A task of a pool waits for pullers, in indexes of that pool; each is named as the index whose place it takes. `pools`
-- has the names of all that ever had a task or a puller.
local pools_known
local function pools()
  pools_known = pools_known or call('HKEYS', K.pools)
  return pools_known
end

local function index_of(kind, pool) return TAG .. (pool and 'pool_' .. kind .. ':' .. pool or kind) end

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

-- Whether anything has limits here, and the rules for that: see `limits.lua`, `tenants.lua` and `caps.lua`.
local is_limiting, limits, tenants
local is_capping, caps
-- Whether any rule wants to be told that a group is drained, and what tells it: see `draining.lua`.
local is_draining, drains

-- Takes a group out of the index in which it is ready, unless that is `stays`: it is in at most one of two, or of two
-- for each pool.
local function leave_indexes(group, stays)
  for _, pool in ipairs(pools()) do
    for _, kind in ipairs({ 'ready', 'quarantined_groups' }) do
      local index = index_of(kind, pool)
      if index ~= stays then call('ZREM', index, group) end
    end
  end
  if stays ~= K.ready then call('ZREM', K.ready, group) end
  if stays ~= K.quarantined_groups and is_in_quarantine(group) then call('ZREM', K.quarantined_groups, group) end
end

-- A group isn't ready; it may be held.
local function unready(group, now)
  if is_limiting() then
    local left = is_capping() and caps().leave(group)
    tenants().leave(group, now)
    if left then caps().turn(left, now) end
  end
  leave_indexes(group)
  call('ZREM', K.held, group)
  return false
end

-- Gives a ready group its place. In fair order one that is ready already keeps its turn, even if a task comes back into
-- it.
local function line_up(index, score, group)
  if ORDER == 'fair' then return call('ZADD', index, 'LT', score, group) end
  return call('ZADD', index, score, group)
end

-- Puts a ready group where claims look, or where it waits for its tenant's turn. Returns whether it may be claimed now.
local function stand(group, head, is_quarantined, pool, score, now)
  if is_limiting() then
    local may_start = tenants().line_up(group, head, score, is_quarantined, now)
    if may_start ~= nil then return may_start end
  end
  if pool then
    tell('pool')
  elseif is_quarantined then
    may_quarantine = true
  end
  line_up(index_of(is_quarantined and 'quarantined_groups' or 'ready', pool), score, group)
  return true
end

-- The same for a plain task.
local function stand_plain(entry, is_quarantined, pool, score, now)
  if is_limiting() and tenants().line_up_plain(entry, score, is_quarantined, now) then return end
  call('ZADD', index_of(is_quarantined and 'quarantined_plain' or 'ordered', pool), score, entry)
  if pool then tell('pool') end
end

-- Lets a plain task wait for the limit of its type, or for its tenant's turn. Returns whether it has to be asked for
-- there.
local function waits_in_line(entry, order, is_quarantined, pool, now)
  if not is_limiting() then return false end
  local kind = is_quarantined and 'P' or 'p'
  if is_capping() and caps().line_up(kind, pool, entry, entry, digits(order), now) ~= nil then return true end
  return tenants().line_up_plain(entry, digits(order), is_quarantined, now)
end

-- Puts a group in which one more task may run into the one state that its facts call for. A group whose head is a
-- quarantined task is ready too, in an index of its own, so that no ordinary claim meets it. Returns true where it may
-- now be claimed.
local function place_unlocked(group, now)
  local head = call('LINDEX', K.lane .. group, -1)
  if not head and is_draining() then head = drains().tell_of(group, now) end
  if not head or is_withheld(group) then return unready(group, now) end
  local order, priority, failed, is_quarantined, pool = order_of(head)
  local due = has_state(head) and tonumber(call('HGET', K.task_state .. id_of(head), 'due') or nil) or 0
  if is_limiting() then
    local free = limits().free_at(group, head, now)
    if not free then return unready(group, now) end -- the end of one that runs places it again
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
  leave_indexes(group, index)
  local score = digits(ORDER == 'fair' and (failed and now or (now - priority)) or order)
  if is_limiting() and is_capping() then
    local may_start = caps().line_up(is_quarantined and 'G' or 'g', pool, group, head, score, now)
    if may_start ~= nil then return may_start end
  end
  return stand(group, head, is_quarantined, pool, score, now)
end

-- The same for a group that may be running. A script that changes a fact (the lock, the lane, a hold) calls one of the
-- two right after. Beside these, only `place_freed` and tenants' turns put a group into `ready`, `quarantined_groups`
-- or `held`.
local function place(group, now)
  if call('EXISTS', K.lock .. group) == 1 and not is_limiting() then return false end
  return place_unlocked(group, now)
end

-- A task waits until it is due, and its group, if any, goes on. `aside` counts those of each group.
local function stand_aside(entry, group, due)
  if call('ZADD', K.delayed, digits(due), entry) == 1 and group ~= '' then call('HINCRBY', K.aside, group, 1) end
  wake_at_due(K.delayed, due)
end

-- The same, back. Returns whether it stood there.
local function leave_aside(entry, group)
  if call('ZREM', K.delayed, entry) == 0 then return false end
  if group ~= '' and call('HINCRBY', K.aside, group, -1) <= 0 then call('HDEL', K.aside, group) end
  return true
end

-- A group's pause ends, or that of everything (''). Returns 1, or 0 where there was none.
local function resume(group, now)
  call('ZREM', K.resumes, group)
  if group == '' then
    wake()
    return call('DEL', K.paused_all)
  end
  local was_paused = call('HDEL', K.paused, group)
  if place(group, now) then wake_for(group) end
  return was_paused
end

-- Takes a waiting task out of the zset where it stands, if it stands in one. Returns whether it did.
local function leave_zset(entry, group, now)
  if leave_aside(entry, group) then return true end
  if group ~= '' then return false end
  local cap = is_limiting() and is_capping() and caps().leave_plain(entry)
  local is_gone = is_limiting() and tenants().leave_plain(entry, now)
  local pool = call('HGET', K.task_state .. id_of(entry), 'pool') or nil
  for _, kind in ipairs({ 'ordered', 'quarantined_plain' }) do
    is_gone = is_gone or call('ZREM', index_of(kind, pool), entry) == 1
  end
  if cap then caps().turn(cap, now) end
  return cap or is_gone
end

-- How many of a lane are older than a sequence number, where `least` are known to be: it is in order of arrival. Most that
-- is looked for stands near: so the steps double, then halve, about forty looks at a million.
local function count_older(lane, sequence, least)
  local older, most, step, length = least or 0, nil, 1, call('LLEN', lane)
  local function is_older(number) return sequence_of(call('LINDEX', lane, -number)) < sequence end
  while older + step <= length and is_older(older + step) do older, step = older + step, 2 * step end
  most = math.min(older + step - 1, length)
  while older < most do
    local middle = math.floor((older + most + 1) / 2)
    if is_older(middle) then older = middle else most = middle - 1 end
  end
  return older
end

-- Takes entries out of a lane, or of the plain list, of each of which is said how many are older. Redis walks a list from
-- its nearer end to what is to be removed: so these are marked first, and one walk from each end removes all of them.
local GONE = '-'
local function leave_lane(lane, places)
  local length, nearer_old = call('LLEN', lane), 0
  for _, place in ipairs(places) do
    call('LSET', lane, -place - 1, GONE)
    if 2 * place < length then nearer_old = nearer_old + 1 end
  end
  if nearer_old > 0 then call('LREM', lane, -nearer_old, GONE) end
  if nearer_old < #places then call('LREM', lane, #places - nearer_old, GONE) end
end

-- Puts an entry into its group's lane where its arrival belongs: a lane is in order of arrival, even where a task
-- comes back. Nearly always that is in front.
local function insert(lane, entry)
  local older = count_older(lane, sequence_of(entry))
  if older == 0 then return call('RPUSH', lane, entry) end
  local newer = call('LINDEX', lane, -(older + 1))
  if newer then return call('LINSERT', lane, 'AFTER', newer, entry) end -- walks the list from its young end, in C
  return call('LPUSH', lane, entry)
end

-- Puts a task back to its place in its group, or among the plain ones.
local function put_back(entry, group, now)
  if group ~= '' then
    insert(K.lane .. group, entry)
    return place(group, now)
  end
  local order, _, _, is_quarantined, pool = order_of(entry)
  if waits_in_line(entry, order, is_quarantined, pool, now) then return true end
  local oldest = call('LINDEX', K.plain, -1)
  if has_state(entry) or (oldest and sequence_of(oldest) < order) then -- the list stays in order of arrival
    call('ZADD', index_of(is_quarantined and 'quarantined_plain' or 'ordered', pool), digits(order), entry)
    if pool then tell('pool') end
  else
    call('RPUSH', K.plain, entry)
  end
  return true
end
