#!lua flags=allow-oom
-- move_turns: put groups and tasks that wait for their tenant's turn, or for their type, among the rest, where they can
-- be moved.
-- No daemon runs; later, claims put back those that they meet.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 about how many groups, and how many plain tasks, at most
-- returns  { 1, how many it was, 0 if none is left }; or { 0, names of daemons that run }
local now, most, number = clock(), tonumber(ARGV[1]), 0
local daemons = living()
if daemons then return { 0, daemons } end
may_limit, may_cap = false, false -- place them as if nothing had limits

-- Some fields of a hash and their values, none only where it is empty: one HSCAN gives up behind many empty places.
local function some_in(key)
  local cursor, found = '0', {}
  repeat cursor, found = unpack(call('HSCAN', key, cursor, 'COUNT', most)) until #found > 0 or cursor == '0'
  return found
end

for _, key in ipairs({ K.turns, K.standing }) do
  local names = key == K.turns and call('HKEYS', key) or call('ZRANGE', key, 0, -1)
  for _, name in ipairs(names) do
    local tenant = key == K.turns and sub(name, 2) or name
    for _, kind in ipairs({ 'p', 'P' }) do
      local page = call('ZRANGE', K.waits .. kind .. tenant, 0, most - 1, 'WITHSCORES')
      for i = 1, #page, 2 do
        local order, _, _, is_quarantined = order_of(page[i])
        call('ZREM', K.waits .. kind .. tenant, page[i])
        call('ZADD', is_quarantined and K.quarantined_plain or K.ordered, digits(order), page[i])
        number = number + 1
      end
      if number >= most then return { 1, number } end
    end
  end
end
local tasks = some_in(K.cap_tasks)
for i = 1, #tasks, 2 do
  local order, _, _, is_quarantined, pool = order_of(tasks[i])
  call('HDEL', K.cap_tasks, tasks[i])
  call('ZREM', K.cap_waits .. tasks[i + 1], tasks[i])
  call('ZADD', index_of(is_quarantined and 'quarantined_plain' or 'ordered', pool), digits(order), tasks[i])
  number = number + 1
end
for known, lines in pairs({ [K.cap_groups] = K.cap_waits, [K.waiting_groups] = K.waits }) do
  local groups = some_in(known)
  for i = 1, #groups, 2 do
    call('HDEL', known, groups[i])
    call('ZREM', lines .. groups[i + 1], groups[i])
    place(groups[i], now)
    number = number + 1
  end
end
if number == 0 then call('DEL', K.turns, K.standing, K.cap_turns, K.cap_standing, K.cap_lines) end
return { 1, number }
