#!lua flags=no-writes
-- list: some tasks of a state, the next to run first where there is an order. A look, not a census:
-- it stops at the limit, and never walks what it doesn't return.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 'queued', 'running', 'delayed' or 'done' · 2 how many at most
-- returns  rows of { id, group or '', turn }, a turn being text by which rows of several partitions sort:
--          the number of a part of the list, and a time (16 digits)
local state, limit = ARGV[1], tonumber(ARGV[2])
local rows, part = {}, 0
local NEVER = digits(0)

local function add(id, group, time)
  if #rows < limit then rows[#rows + 1] = { id, group, part .. time } end
end

local function add_elements(elements, group)
  for i = #elements, 1, -1 do add(id_of(elements[i]), group, sub(elements[i], 1, 16)) end
end

local function add_lane(group, from)
  local left = limit - #rows
  if left > 0 then add_elements(call('LRANGE', K.lane .. group, -left, from), group) end
end

local function begin_part() part = part + 1 end

if state == 'running' then
  for _, claim in ipairs(claims(limit)) do add(id_of(claim.element), claim.group, claim.since) end
elseif state == 'delayed' then
  local delayed = call('ZRANGE', K.delayed, 0, limit - 1, 'WITHSCORES')
  for i = 1, #delayed, 2 do
    local id = id_of(delayed[i])
    add(id, call('HGET', K.life .. id, 'group') or '', digits(delayed[i + 1]))
  end
  begin_part()
  local held = call('ZRANGE', K.held, 0, limit - 1, 'WITHSCORES')
  for i = 1, #held, 2 do
    local head = call('LINDEX', K.lane .. held[i], -1)
    if head then add(id_of(head), held[i], digits(held[i + 1])) end
  end
elseif state == 'queued' then
  add_elements(call('LRANGE', K.plain, -limit, -1), '')
  begin_part()
  local ordered = members_of(PLAIN, 0, limit)
  for i = 1, #ordered, 2 do add_elements({ ordered[i] }, '') end
  begin_part()
  local ready = members_of(READY, 0, limit)
  for i = 1, #ready, 2 do add_lane(ready[i], -1) end
  begin_part()
  for _, claim in ipairs(claims(100000, true)) do add_lane(claim.group, -1) end
  begin_part()
  for _, group in ipairs(call('ZRANGE', K.held, 0, limit - 1)) do add_lane(group, -2) end
  begin_part()
  for _, key in ipairs({ K.parked, K.paused }) do
    for _, group in ipairs(groups_in(key, limit)) do add_lane(group, -1) end
  end
elseif state == 'done' then
  for _, key in ipairs({ K.history_new, K.history_old }) do
    local page = call('HSCAN', key, 0, 'COUNT', limit)[2]
    for i = 1, #page, 2 do
      local is_sound, facts = pcall(cjson.decode, string.sub(page[i + 1], 17))
      if is_sound and facts[1] == 'done' then add(page[i], facts[3] ~= cjson.null and facts[3] or '', NEVER) end
    end
  end
end
return rows
