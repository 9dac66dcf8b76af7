-- Behind what claiming means, in `exchange`: which plain tasks the idle slots get.

-- The list is in order of arrival; the zset holds the other tasks. The smaller of the two heads goes first.
local function next_entry()
  local best = call('ZRANGE', FROM.ordered, 0, 0, 'WITHSCORES')
  local oldest = call('LINDEX', FROM.plain, -1)
  if best[1] and (not oldest or tonumber(best[2]) <= sequence_of(oldest)) then
    call('ZREM', FROM.ordered, best[1])
    return best[1]
  end
  return call('RPOP', FROM.plain)
end

local function next_entries(number)
  if call('ZCARD', FROM.ordered) == 0 then return call('RPOP', FROM.plain, number) or {} end
  local entries = {}
  while #entries < number do
    local entry = next_entry()
    if not entry then break end
    entries[#entries + 1] = entry
  end
  return entries
end

-- Where tenants have limits: one by one. A task that its tenant may not start now waits for the tenant's turn. Returns
-- the tasks, their fences, and whether the quarantined task is among them.
local function next_limited_entries(number, quarantined, now)
  local entries, starts, looks = {}, {}, 2 * number + 100
  repeat
    local entry = quarantined or next_entry()
    if not entry then break end
    local order, _, _, is_quarantined = order_of(entry)
    tenants().leave_plain(entry, now)
    local tenant = tenants().of(entry)
    if not tenant or tenants().may_start(tenant, now) then
      local fence = digits(take_fences(1))
      entries[#entries + 1], starts[#entries + 1] = entry, fence
      if tenant then tenants().start(tenant, fence, 'p', now) end
    else
      tenants().line_up_plain(entry, digits(order), is_quarantined, now)
      quarantined = nil
    end
    looks = looks - 1
  until quarantined or #entries == number or looks == 0
  if looks == 0 then tell('plain') end -- there may be more
  return entries, starts, quarantined ~= nil
end

-- The claims, as `give` takes them: of the quarantined task, if any, or of as many tasks as there are slots. Also
-- whether it is the quarantined task's.
local function claim_plain(_, idle, quarantined, now)
  local entries, fences, are_quarantined, groups
  if is_limiting() then
    entries, fences, are_quarantined = next_limited_entries(#idle, quarantined, now)
  else
    entries, fences, are_quarantined = quarantined and { quarantined } or next_entries(#idle), {}, quarantined ~= nil
    local first = #entries > 0 and take_fences(#entries)
    for i = 1, #entries do fences[i] = digits(first + i - 1) end
  end
  groups = {}
  for i = 1, #entries do groups[i] = '' end
  return { slots = idle, fences = fences, entries = entries, groups = groups }, are_quarantined
end
