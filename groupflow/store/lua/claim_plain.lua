#!lua flags=allow-oom
-- claim (plain): give each idle slot the plain task with the smallest order_time; or one suspect to
-- one of them, where the daemon runs none.
-- A slot that holds a claim already is given that one again, so a lost reply costs nothing.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3… one idle slot each, 500 at most
-- returns  { state, a flat list of seven a claim: slot · fence (16 digits) · element · '' · envelope
--          and body, or how many bytes are to be fetched (see `claiming.lua`) · life as a flat list, '' where it has none · ''; Redis's clock (µs);
--          1 where the daemon runs a suspect, in either pool, else 0 }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {}, 0, 0 } end
local now = clock()
local rows, idle, before = split_slots(daemon, { unpack(ARGV, 3) }, now)
if #idle == 0 then return { 'OK', rows, now, mark and 1 or 0 } end

-- The list is in order of arrival by itself; the zset holds what isn't. The smaller of the two heads
-- goes first.
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

local suspect = take_suspect(FROM.suspect_plain)

-- Where tenants have limits: one by one. A task whose tenant may not start it waits for that from here on.
local function next_limited_elements(number)
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
  return elements, starts
end

local elements, fences
if is_limiting() then
  elements, fences = next_limited_elements(#idle)
else
  elements, fences = suspect and { suspect } or next_elements(#idle), {}
  local first = #elements > 0 and take_fences(#elements)
  for i = 1, #elements do fences[i] = digits(first + i - 1) end
end
if #elements == 0 then return { 'OK', rows, now, mark and 1 or 0 } end
local groups = {}
for i = 1, #elements do groups[i] = '' end
local claims = { slots = idle, fences = fences, elements = elements, groups = groups }
local passed = give(daemon, claims, before, rows, now)
for _, at in ipairs(passed) do unlock('', fences[at], now) end
if suspect and #passed == 0 then mark_suspect(daemon, claims, now) end
count_claims('plain', #elements, #passed)
return { 'OK', rows, now, mark and 1 or 0 }
