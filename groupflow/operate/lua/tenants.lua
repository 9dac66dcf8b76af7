#!lua flags=no-writes
-- tenants: a step of a walk through all tenants: those with a limit, or something that waits or runs. It looks at so
-- many entries of one list after another, and of no list at more than may be. What moves between two steps may be
-- missed, or seen twice.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many to look at · 2 how many of each list · where it begins: 3 the list, 4 the place in it, 5 how many
--          of it have been looked at; '1', '0', '0' is the beginning
-- returns  { at (now), looked_at, is_cut: 1 if a list was left for the next one, else 0; part, place, passed: where the
--          next step begins, nothing at the end; rows }, rows of { tenant, its scope and name; of what, waiting,
--          running: tasks; the entry of the next one, or '' }. Of what is a group behind the letter of its state
--          (R running, H paused, P parked, L in its tenant's or type's line, E ready, D delayed), `l` the plain tasks in
--          the tenant's line, `s` the same of a tenant of which nothing may start, `p` other plain tasks, `d` delayed
--          tasks that let their group go on, `r` a claim, `n` a name that has a limit, without a scope.
local most, of_each = tonumber(ARGV[1]), tonumber(ARGV[2])
local part, place, passed = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local rows, looked, steps, sums = {}, 0, 0, {} -- an empty step counts as a look too
local T = tenants()

-- Tasks without a tenant are no tenant's, unless tenants take turns.
local function add(tenant, what, waiting, running, entry)
  if #tenant > 8 or ORDER == 'tenants' then rows[#rows + 1] = { tenant, what, waiting, running, entry or '' } end
end

local function add_line(tenant, what)
  local line, quarantined = K.waits .. 'p' .. tenant, K.waits .. 'P' .. tenant
  local first = call('ZRANGE', quarantined, 0, 0)[1] or call('ZRANGE', line, 0, 0)[1]
  add(tenant, what, call('ZCARD', line) + call('ZCARD', quarantined), 0, first)
end

local function add_group(state, group, running)
  local head = call('LINDEX', K.lane .. group, -1) or running
  if head then add(T.tenant_of(head), state .. group, call('LLEN', K.lane .. group), 0, head) end
end

local function groups(state)
  return function(group) add_group(state, group) end
end

local function add_claim(claim)
  add(T.tenant_of(claim.entry), 'r', 0, 1, claim.entry)
  if claim.group ~= '' then add_group('R', claim.group, claim.entry) end
end

-- Of plain tasks there is one row for each tenant.
local function add_plain(entry, what)
  local whose = (what or 'p') .. T.tenant_of(entry)
  sums[whose] = sums[whose] or { 0, entry }
  sums[whose][1] = sums[whose][1] + 1
end

-- What stands in a tenant's line is counted there.
local function add_ordered(entry)
  if not (is_limiting() and T.of(entry)) then add_plain(entry) end
end

local function add_delayed(entry)
  local _, _, group = facts_of(id_of(entry))
  add_plain(entry, group ~= '' and 'd' or 'p')
end

-- What has the turn of its type's line stands elsewhere too.
local function add_capped(entry, line)
  if call('HGET', K.cap_turns, line) ~= entry then add_plain(entry) end
end

local function add_limited(whose)
  if byte(whose) == byte('t') and #whose > 1 then add('--------' .. sub(whose, 2), 'n', 0, 0) end
end

-- One step through a list, by places or by HSCAN. Returns whether that is over.
local function in_order(read, visit)
  return function(number)
    local page = read(tonumber(place), number)
    for _, each in ipairs(page) do visit(each) end
    looked, place = looked + #page, tostring(tonumber(place) + #page)
    return #page < number
  end
end

local function in_hash(key, visit)
  return function(number)
    local step = call('HSCAN', key, place, 'COUNT', number)
    for i = 1, #step[2], 2 do visit(step[2][i], step[2][i + 1]) end
    looked, steps, place = looked + #step[2] / 2, steps + 1, step[1]
    return place == '0'
  end
end

local function in_all(indexes, visit)
  return in_order(function(from, number) return members_of(indexes, from, number) end, visit)
end

local function running(from, number)
  return { unpack(claims(from + number), from + 1, from + number) }
end

local function plain(from, number)
  return call('LRANGE', K.plain, -(from + number), -(from + 1))
end

local PARTS = {
  in_hash(K.limits, add_limited), in_hash(K.by_hand, add_limited),
  in_all({ K.standing }, function(tenant) add_line(tenant, 's') end),
  in_hash(K.turns, function(whose) if sub(whose, 1, 1):lower() == 'p' then add_line(sub(whose, 2), 'l') end end),
  in_order(running, add_claim), in_hash(K.paused, groups('H')), in_hash(K.parked, groups('P')),
  in_hash(K.waiting_groups, groups('L')), in_hash(K.cap_groups, groups('L')),
  in_all(READY, groups('E')), in_all({ K.held }, groups('D')), in_order(plain, add_plain), in_all(PLAIN, add_ordered),
  in_hash(K.cap_tasks, add_capped), in_all({ K.delayed }, add_delayed),
}
local is_cut = 0
while PARTS[part] and looked + steps < most do
  local before = looked + steps
  local is_over = PARTS[part](math.min(most - before, of_each - passed))
  passed = passed + looked + steps - before
  if not is_over and passed >= of_each then is_over, is_cut = true, 1 end
  if is_over then part, place, passed = part + 1, '0', 0 end
end
for whose, sum in pairs(sums) do add(sub(whose, 2), sub(whose, 1, 1), sum[1], 0, sum[2]) end
local is_left = PARTS[part] and true or nil
return named({
  at = clock(), looked_at = looked, is_cut = is_cut, part = is_left and part, place = is_left and place,
  passed = is_left and passed, rows = rows,
})
