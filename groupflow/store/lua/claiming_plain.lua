-- Behind what claiming means, in `exchange`: which plain tasks the idle slots get.

-- The list is in order of arrival; the zset holds the other tasks. The smaller of the two heads goes first.
local function next_element()
  local best = call('ZRANGE', FROM.ordered, 0, 0, 'WITHSCORES')
  local oldest = call('LINDEX', FROM.plain, -1)
  if best[1] and (not oldest or tonumber(best[2]) <= arrival_of(oldest)) then
    call('ZREM', FROM.ordered, best[1])
    return best[1]
  end
  return call('RPOP', FROM.plain)
end

local function next_elements(number)
  if call('ZCARD', FROM.ordered) == 0 then return call('RPOP', FROM.plain, number) or {} end
  local elements = {}
  while #elements < number do
    local element = next_element()
    if not element then break end
    elements[#elements + 1] = element
  end
  return elements
end

-- Where tenants have limits: one by one. A task that its tenant may not start now waits for the tenant's turn. Returns
-- the tasks, their fences, and whether the suspect is among them.
local function next_limited_elements(number, suspect, now)
  local elements, starts, looks = {}, {}, 2 * number + 100
  repeat
    local element = suspect or next_element()
    if not element then break end
    local order, _, _, is_suspect = order_of(element)
    tenants().leave_plain(element, now)
    local tenant = tenants().of(element)
    if not tenant or tenants().may_start(tenant, now) then
      local fence = digits(take_fences(1))
      elements[#elements + 1], starts[#elements + 1] = element, fence
      if tenant then tenants().start(tenant, fence, 'p', now) end
    else
      tenants().line_up_plain(element, digits(order), is_suspect, now)
      suspect = nil
    end
    looks = looks - 1
  until suspect or #elements == number or looks == 0
  if looks == 0 then tell('plain') end -- there may be more
  return elements, starts, suspect ~= nil
end

-- The claims, as `give` takes them: of the suspect, if any, or of as many tasks as there are slots. Also whether it is
-- the suspect's.
local function claim_plain(_, idle, suspect, now)
  local elements, fences, is_suspects, groups
  if is_limiting() then
    elements, fences, is_suspects = next_limited_elements(#idle, suspect, now)
  else
    elements, fences, is_suspects = suspect and { suspect } or next_elements(#idle), {}, suspect ~= nil
    local first = #elements > 0 and take_fences(#elements)
    for i = 1, #elements do fences[i] = digits(first + i - 1) end
  end
  groups = {}
  for i = 1, #elements do groups[i] = '' end
  return { slots = idle, fences = fences, elements = elements, groups = groups }, is_suspects
end
