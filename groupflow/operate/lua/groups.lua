#!lua flags=no-writes
-- groups: a page of the groups in a state. It looks at so many entries of that state's index at
-- most, even if few pass the filter; the next page goes on where it ended. Groups that come or go
-- meanwhile may be missed or shown twice.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'ready', 'delayed', 'running', 'parked' or 'paused' · 2 cursor, '0' to begin, '' for the total
--          alone · 3 how many to look at · 4 how many to return (of parked and paused ones, a step of HSCAN comes
--          whole) · 5 text that the group's name must hold, '' for any · 6 tenant of its head,
--          '' for any
-- returns  { at (now), next: cursor of the next page, none at the end, total: groups in that state, looked_at,
--          groups }, rows of { group, waiting in its lane, head: id of the task that runs or is next, its
--          enqueued_at, type and tenant; until (of a delayed one), since and by (of what runs or is held);
--          place: how many were looked at with it; turn: the value by which its state is ordered, if any }
local state, cursor, most, limit = ARGV[1], tonumber(ARGV[2]) or -1, tonumber(ARGV[3]), tonumber(ARGV[4])
if cursor < 0 then cursor, most = 0, 0 end
local text, tenant = ARGV[5], ARGV[6]
local rows, looked, total, next_cursor = {}, 0, 0, nil

local function add(row, entry)
  looked = looked + 1
  if text ~= '' and not string.find(row.group, text, 1, true) then return end
  local head = entry or call('LINDEX', K.lane .. row.group, -1)
  local head_type, head_tenant = '', ''
  if head then
    row.head, row.enqueued_at = id_of(head), sequence_of(head)
    head_type, head_tenant = facts_of(row.head)
  end
  if tenant ~= '' and tenant ~= head_tenant then return end
  row.place = looked
  row.type, row.tenant, row.waiting = some(head_type), some(head_tenant), call('LLEN', K.lane .. row.group)
  rows[#rows + 1] = named(row)
end

-- In an ordered state the next page begins behind the last group looked at.
local function go_on() if cursor + looked < total then next_cursor = tostring(cursor + looked) end end

if state == 'ready' or state == 'delayed' then
  local indexes = state == 'ready' and READY or { K.held }
  total = count_in(indexes)
  local page, turns = members_of(indexes, cursor, most)
  local quarantined = state == 'ready' and call('ZCARD', K.quarantined_groups) or 0
  for i, group in ipairs(page) do
    local row = { group = group, ['until'] = state == 'delayed' and turns[i] or nil }
    row.turn = cursor + looked < quarantined and '0' or turns[i]
    if #rows < limit then add(row) end
  end
  go_on()
elseif state == 'running' then
  local claims = claims(100000, true)
  total = #claims
  for i = cursor + 1, math.min(cursor + most, total) do
    local claim = claims[i]
    local by = claim.daemon .. ', ' .. claim.slot
    local row = { group = claim.group, since = claim.since, by = by, turn = claim.since }
    if #rows < limit then add(row, claim.entry) end
  end
  go_on()
else
  local key = TAG .. state
  total = call('HLEN', key)
  local page = most > 0 and call('HSCAN', key, ARGV[2], 'COUNT', most) or { '0', {} }
  for i = 1, #page[2], 2 do
    local note = cjson.decode(page[2][i + 1])
    add({ group = page[2][i], by = note[1], since = note[2] })
  end
  if page[1] ~= '0' then next_cursor = page[1] end
end
return named({ at = clock(), next = next_cursor, total = total, looked_at = looked, groups = rows })
