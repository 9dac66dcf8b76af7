#!lua flags=no-writes
-- list: a page of the tasks of a state, the next to run first if there is an order; of running ones, the longest
-- first. It walks only what it returns, and groups that have nothing to show. A task that moves between two
-- pages may be missed, or shown twice.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'queued', 'running', 'delayed', or how tasks ended that are over · 2 how many at most · where the page
--          begins: 3 part of the list, 4 place in it, 5 tasks to pass over there, in lanes; '1', '0', '0' is the
--          beginning · 6 of tasks that are over, if not all are wanted (JSON): 'from' and 'till' when they ended
--          (16 digits), 'older' (µs), 'most': how many, the latest of the page, and all that ended with the last of
--          these; 'id' and 'group', parts of them, 'type', or its beginning and '*'
-- returns  { at (now), tasks: rows of { id, group, type, tenant, attempt, enqueued_at, pool, since: of what runs or is
--          over, until: of what is delayed, or queued in a lane before its own time, turn: text by which rows of several
--          partitions sort, the number of a part and a time (16 digits) }; part, place, deep: where the next page
--          begins, nothing at the end; looked_at: of tasks that are over, how many }. Of these a page is what one step
--          of HSCAN gives.
local state, limit = ARGV[1], tonumber(ARGV[2])
local part, place, deep = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local GROUPS = 1000 -- with nothing to show, that a page may pass over
local rows, passed, now = {}, 0, clock()

local function left() return limit - #rows end

local function add(entry, group, turn, facts)
  local row, id = facts or {}, id_of(entry)
  local task_type, tenant = facts_of(id)
  row.id, row.group, row.turn, row.enqueued_at = id, some(group), part .. turn, sequence_of(entry)
  row.type, row.tenant = task_type, some(tenant)
  local kept = has_state(entry) and call('HMGET', K.task_state .. id, 'attempt', 'pool', 'due') or {}
  row.attempt, row.pool = tonumber(kept[1] or 1), kept[2] or nil
  if kept[3] and tonumber(kept[3]) > now then row['until'] = row['until'] or kept[3] end
  rows[#rows + 1] = named(row)
end

-- Adds tasks of a list from its head on, behind the first `from`. Returns how many.
local function add_list(key, group, from)
  local page = call('LRANGE', key, -(from + left()), -(from + 1))
  for i = #page, 1, -1 do add(page[i], group, sub(page[i], 1, 16)) end
  return #page
end

-- The same of indexes of plain tasks.
local function add_entries(indexes, from)
  local page = members_of(indexes, from, left())
  for _, entry in ipairs(page) do add(entry, '', sub(entry, 1, 16)) end
  return #page
end

local function is_plain(whose) return byte(whose) == byte('p') or byte(whose) == byte('P') end

-- The members of a list from `place` on, `most` at most.
local function cut(list, most)
  local found = {}
  for i = place + 1, math.min(#list, place + most) do found[#found + 1] = list[i] end
  return found
end

-- What waits under a name: a group's lane, or plain tasks that wait for their tenant's turn or for the limit of their
-- type. How many, and adding those behind the first `from`.
local LANE = {
  length = function(group) return call('LLEN', K.lane .. group) end,
  add = function(group, from) return add_list(K.lane .. group, group, from) end,
}
local function plain_in(front)
  return {
    length = function(whose) return is_plain(whose) and call('ZCARD', front .. whose) or 0 end,
    add = function(whose, from) return add_entries({ front .. whose }, from) end,
  }
end

-- A part made of these, one name behind another: `step` has some names from `place` on, and the next place, '0' at
-- the end. `deep` is how many tasks of the step are passed over, `skipped` says how many of each name. Returns whether
-- it is over.
local function lanes(kind, step, skipped)
  return function()
    while left() > 0 and passed < GROUPS do
      local names, next_place = step()
      local over = deep
      for _, name in ipairs(names) do
        local skip = skipped and skipped(name) or 0
        local length = kind.length(name) - skip
        if over >= length then
          over, passed = over - math.max(0, length), passed + 1
        else
          deep, over = deep + kind.add(name, over + skip), 0
          if left() == 0 then return false end
        end
      end
      place, deep = next_place, 0
      if place == '0' then return true end
    end
    return false
  end
end

local STEP = 100 -- groups, of which those that a page ends in are looked at again

-- Steps through an order, of which `groups_from` has so many from `place` on.
local function in_order(groups_from)
  return function()
    place = tonumber(place)
    local groups = groups_from(STEP)
    return groups, #groups < STEP and '0' or place + #groups
  end
end

-- Steps through the groups of a hash, which has no order.
local function in_hash(key)
  return function() return names_in(key, place, STEP) end
end

local function running_groups(most)
  local groups, known = {}, {}
  for _, claim in ipairs(claims(100000, true)) do
    if not known[claim.group] then groups[#groups + 1] = claim.group end
    known[claim.group] = true
  end
  table.sort(groups)
  return cut(groups, most)
end

-- A group that runs may be paused or parked too; one that may run several tasks at once may be ready, delayed, or wait
-- for a turn. Its lane is listed there.
local function stands_too(group)
  local stands = call('ZSCORE', K.held, group)
  for _, key in ipairs({ K.waiting_groups, K.cap_groups, K.parked, K.paused }) do
    stands = stands or call('HEXISTS', key, group) == 1
  end
  for _, index in ipairs(READY) do stands = stands or call('ZSCORE', index, group) end
  return stands and math.huge or 0
end
local function is_parked(group) return call('HEXISTS', K.parked, group) == 1 and math.huge or 0 end

-- A part that is read by places in order. Returns whether it is over.
local function places(add_from)
  return function()
    place = tonumber(place)
    local most = left()
    local count = add_from(most)
    place = place + count
    return count < most
  end
end

-- Adds tasks by their due times, from an index of entries or one of groups.
local function add_due(index, most)
  local found = call('ZRANGE', index, place, place + most - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local entry, group = found[i], found[i]
    if index == K.delayed then
      group = call('HGET', K.task_state .. id_of(entry), 'group') or ''
    else
      entry = call('LINDEX', K.lane .. group, -1)
    end
    if entry then add(entry, group, digits(found[i + 1]), { ['until'] = found[i + 1] }) end
  end
  return #found / 2
end

local function add_running(most)
  local found = claims(100000)
  table.sort(found, is_earlier)
  local page = cut(found, most)
  for _, claim in ipairs(page) do add(claim.entry, claim.group, claim.since, { since = claim.since }) end
  return #page
end

local wanted, looked_at = (ARGV[6] or '') ~= '' and cjson.decode(ARGV[6]) or {}, 0

local function is_wanted(facts)
  return (not wanted.type or is_of_type(facts[2], wanted.type))
    and (not wanted.group or facts[3] ~= cjson.null and string.find(facts[3], wanted.group, 1, true))
end

-- One HSCAN step through a part of the history, which has no order: the latest first within a step.
local function history(key)
  local from, till = wanted.from or '', wanted.till or digits(9007199254740991)
  if wanted.older then till = digits(math.min(tonumber(till), now - wanted.older)) end
  return function()
    local step = call('HSCAN', key, place, 'COUNT', limit)
    local found, begin, added, last = {}, '["' .. state .. '"', 0, nil
    for i = 1, #step[2], 2 do
      local id, line = step[2][i], step[2][i + 1]
      local ended = sub(line, 1, 16)
      if ended >= from and ended <= till and sub(line, 17, 16 + #begin) == begin
        and (not wanted.id or string.find(id, wanted.id, 1, true)) then
        found[#found + 1] = { id, line }
      end
    end
    looked_at = looked_at + #step[2] / 2
    table.sort(found, function(a, b) return a[2] > b[2] end)
    for _, each in ipairs(found) do
      local is_sound, facts = pcall(cjson.decode, sub(each[2], 17))
      local ended = sub(each[2], 1, 16)
      if is_sound and is_wanted(facts) and (added < (wanted.most or math.huge) or ended == last) then
        added, last = added + 1, ended
        rows[#rows + 1] = named({
          id = each[1], type = facts[2], group = facts[3] ~= cjson.null and facts[3] or nil,
          attempt = tonumber(facts[4]), since = ended, turn = part .. digits(9007199254740991 - ended),
        })
      end
    end
    place = step[1]
    return step[1] == '0'
  end
end

-- A group that waits for its tenant's turn and has it is among the ready ones. So is the first plain task of a tenant
-- that has the turn among those that daemons claim from.
local function has_turn(group)
  local is_ready = call('ZSCORE', K.ready, group) or call('ZSCORE', K.quarantined_groups, group)
  return is_ready and math.huge or 0
end
local function one() return 1 end

local function standing(most)
  local whose = {}
  for _, tenant in ipairs(call('ZRANGE', K.standing, place / 2, (place + most) / 2 - 1)) do
    whose[#whose + 1], whose[#whose + 2] = 'P' .. tenant, 'p' .. tenant
  end
  return whose
end

-- A group that waits for the limit of its type and has the turn is among the ready ones, or waits for its tenant's. So
-- is the first plain task of such a line, which `lines_of_types` names by their places (`caps.lua`).
local function has_type_turn(group)
  local place = call('HGET', K.cap_groups, group)
  return place and call('HGET', K.cap_turns, place) == group and math.huge or 0
end
local function first_of_line(line) return call('HEXISTS', K.cap_turns, line) end

local function lines_of_types(most)
  local lines = {}
  for _, member in ipairs(call('ZRANGE', K.cap_lines, place, place + most - 1)) do
    lines[#lines + 1] = line_named(member)
  end
  return lines
end

local PARTS = {
  running = { places(add_running) },
  delayed = {
    places(function(most) return add_due(K.delayed, most) end), places(function(most) return add_due(K.held, most) end),
  },
  queued = {
    places(function() return add_list(K.plain, '', place) end), places(function() return add_entries(PLAIN, place) end),
    lanes(LANE, in_order(function(most) return members_of(READY, place, most) end)),
    lanes(LANE, in_hash(K.waiting_groups), has_turn), lanes(LANE, in_hash(K.cap_groups), has_type_turn),
    lanes(LANE, in_order(running_groups), stands_too),
    lanes(LANE, in_order(function(most) return members_of({ K.held }, place, most) end), one),
    lanes(LANE, in_hash(K.parked)), lanes(LANE, in_hash(K.paused), is_parked),
    lanes(plain_in(K.waits), in_hash(K.turns), one), lanes(plain_in(K.waits), in_order(standing)),
    lanes(plain_in(K.cap_waits), in_order(lines_of_types), first_of_line),
  },
}
local parts = PARTS[state] or { history(K.history_new), history(K.history_old) }
local is_over = true
while parts[part] and left() > 0 and passed < GROUPS do
  is_over = parts[part]()
  if not is_over then break end
  part, place, deep = part + 1, 0, 0
end
local following = parts[part] and {} or nil
return named({
  at = now, tasks = rows, part = following and part, place = following and tostring(place),
  deep = following and deep, looked_at = looked_at,
})
