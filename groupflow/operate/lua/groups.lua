#!lua flags=no-writes
-- groups: a page of the groups in a state. It looks at so many entries of that state's index and no
-- more, whatever passes the filter; the next page goes on where it ended. Groups that come or go
-- meanwhile may be missed or shown twice.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 'ready', 'delayed', 'running', 'parked' or 'paused' · 2 cursor, '0' to begin · 3 how many
--          to look at · 4 how many to return (of parked and paused, what shares a step of the hash
--          comes on top) · 5 text that the group's name must hold, '' for any · 6 tenant of its head,
--          '' for any
-- returns  { now (µs), cursor of the next page or '', groups in that state, looked at,
--            rows of { group, score (µs), note (JSON) or checkpoint, waiting in its lane, its head
--            element (the one that runs, or is next) or '', that task's type and tenant, '' each where
--            there is none, daemon or '', worker or '' } }
local state, cursor, most, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local text, tenant = ARGV[5], ARGV[6]
local rows, looked, total, next_cursor = {}, 0, 0, ''

local function add(group, note, element, daemon, worker)
  looked = looked + 1
  if text ~= '' and not string.find(group, text, 1, true) then return end
  local head = element or call('LINDEX', K.lane .. group, -1) or ''
  local head_type, head_tenant = '', ''
  if head ~= '' then head_type, head_tenant = facts_of(id_of(head)) end
  if tenant ~= '' and tenant ~= head_tenant then return end
  rows[#rows + 1] = {
    group, note, call('LLEN', K.lane .. group), head, head_type, head_tenant, daemon or '', worker or '',
  }
end

-- What has an order is left at the group behind the last one looked at.
local function go_on() if cursor + looked < total then next_cursor = tostring(cursor + looked) end end

if state == 'ready' or state == 'delayed' then
  local indexes = state == 'ready' and READY or { K.held }
  total = count_in(indexes)
  local page = members_of(indexes, cursor, most)
  for i = 1, #page, 2 do
    if #rows < limit then add(page[i], page[i + 1]) end
  end
  go_on()
elseif state == 'running' then
  local claims = group_claims(100000)
  total = #claims
  for i = cursor + 1, math.min(cursor + most, total) do
    local claim = claims[i]
    if #rows < limit then add(claim.group, claim.checkpoint, claim.element, claim.daemon, claim.worker) end
  end
  go_on()
else
  local key = K[state]
  total = call('HLEN', key)
  local page = call('HSCAN', key, ARGV[2], 'COUNT', most)
  for i = 1, #page[2], 2 do add(page[2][i], page[2][i + 1]) end
  if page[1] ~= '0' then next_cursor = page[1] end
end
return { clock(), next_cursor, total, looked, rows }
