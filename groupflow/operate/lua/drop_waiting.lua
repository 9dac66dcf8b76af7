#!lua flags=allow-oom
-- drop_waiting: remove a task that waits, or is delayed, for good; its group goes on. A task whose
-- life has no `arrival` is known only by its place in the line: the script looks for it from the newest
-- end, so many places a call. Tasks that come or are claimed meanwhile can't hide it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 group ('' = plain) · 3 its line for the history · 4 place to look from, 0 to begin
--          · 5 how many places to look at
-- returns  { 1 (dropped) or 0, place to go on from, or -1 if there is none }; { 0, -1 }: it doesn't wait
local id, group, from, most = ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
if call('HEXISTS', K.tasks, id) == 0 or call('ZSCORE', K.dead, id) then return { 0, -1 } end
local line = group == '' and K.plain or K.lane .. group

local now = clock()

-- Whether it is of a run: its tasks stay in the lane until they are done.
local function is_of_run(element)
  local run, lock = call('HGET', K.runs, group), call('GET', K.lock .. group)
  return run and lock and sub(lock, 1, 16) <= sub(run, 1, 16) and sub(element, 1, 16) <= sub(run, 17, 32)
end

-- Removes an element from the list or index where it waits.
local function leave(element)
  if group ~= '' and is_of_run(element) then return false end
  if call('ZREM', K.delayed, element) == 1 then return true end
  if group == '' and is_limiting() and tenants().leave_plain(element, now) then return true end
  local pool = call('HGET', K.life .. id, 'pool') or nil
  local indexes = { index_of('ordered', pool), index_of('suspect_plain', pool) }
  for _, index in ipairs(group == '' and indexes or {}) do
    if call('ZREM', index, element) == 1 then return true end
  end
  return call('LREM', line, 1, element) == 1
end

local function look()
  local arrival = call('HGET', K.life .. id, 'arrival')
  if arrival then
    local element = arrival .. '+' .. id
    local is_gone = leave(element)
    if is_gone then leave_burst(element) end
    return is_gone, -1
  end
  local page = call('LRANGE', line, from, from + most - 1)
  for _, element in ipairs(page) do
    if id_of(element) == id then return leave(element), -1 end
  end
  local queue = group == '' and is_limiting() and tenants().queue_of(id)
  local turns = queue and call('ZRANGE', queue, -(from + most), -(from + 1)) or {}
  for _, element in ipairs(turns) do
    if id_of(element) == id then return leave(element), -1 end
  end
  return false, (#page == most or #turns == most) and from + most or -1
end

local is_gone, next_place = look()
if is_gone then
  erase(id, ARGV[3], now)
  call('HINCRBY', K.count, group == '' and 'queued_plain' or 'queued_grouped', -1)
  if group ~= '' then
    call('ZREM', K.held, group) -- it may have been the head that its group was held for
    if place(group, now) then wake_for(group) end
  end
end
return { is_gone and 1 or 0, next_place }
