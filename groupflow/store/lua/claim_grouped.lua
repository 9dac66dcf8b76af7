#!lua flags=allow-oom
-- claim (grouped): give each idle slot the head of a ready group, the best group first, under that
-- group's lock; or one suspect head to one of them, where the daemon runs no suspect. A slot that holds
-- a claim already is given that one again, so a lost reply costs nothing.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 how many of those behind each task are told with it, '0' for none
--          · 4 by rule, how many tasks of a group may be run under one claim (JSON), '' where that is one
--          · 5… one idle slot each, 500 at most
-- returns  { state, a flat list of seven a claim: slot · fence (16 digits) · element · group
--          · envelope and body, or how many bytes are to be fetched (see `claiming.lua`) · life as a flat list, '' where it has none · what stands behind it (see
--          `ahead.lua`), '' where nothing does or nobody asked; Redis's clock (µs);
--          1 where the daemon runs a suspect, in either pool, else 0 }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {}, 0, 0 } end
local now = clock()
local rows, idle, before = split_slots(daemon, { unpack(ARGV, 5) }, now)
if #idle == 0 then return { 'OK', rows, now, mark and 1 or 0 } end

local slots, fences, elements, groups, count = {}, {}, {}, {}, 0
local suspect = take_suspect(FROM.suspect_groups)
local holder, lane = ' ' .. daemon .. ' ', K.lane

-- The heads of so many ready groups, the best first, each under its group's lock.
local function take_heads(best)
  local first = take_fences(#best)
  local locks, told = {}, {}
  for i = 1, #best do
    local fence = digits(first + i - 1)
    told[i], locks[2 * i - 1], locks[2 * i] = fence, K.lock .. best[i], fence .. holder .. idle[i]
  end
  -- No group that is ready has a lock. Should one have, each is asked for by itself.
  local all_locked = call('MSETNX', unpack(locks)) == 1
  for i = 1, #best do
    if all_locked or call('SETNX', locks[2 * i - 1], locks[2 * i]) == 1 then
      local element = call('RPOP', lane .. best[i])
      if element then
        count = count + 1
        slots[count], fences[count], elements[count], groups[count] = idle[i], told[i], element, best[i]
      else
        call('DEL', locks[2 * i - 1])
      end
    end
  end
end

-- The same where there are limits: one by one, since one start may end another's turn, or leave its group
-- ready. A group that may not start, whatever it was ready for, is put where it belongs.
local function take_limited_heads()
  local looks = 2 * #idle + 100
  repeat
    local group = suspect or call('ZRANGE', FROM.ready, 0, 0)[1]
    if not group then return end
    call('ZREM', FROM.ready, group)
    tenants().leave(group, now)
    local head, may_start, tenant = call('LINDEX', lane .. group, -1), false, nil
    if head then
      local free = limits().free_at(group, head, now)
      tenant = tenants().of(head)
      may_start = free and free <= now and (not tenant or tenants().may_start(tenant, now))
    end
    if may_start then
      local fence = digits(take_fences(1))
      if limits().hold(group, head, fence .. holder .. idle[count + 1], now) then
        if tenant then tenants().start(tenant, fence, 'g', now) end
        call('RPOP', lane .. group)
        count = count + 1
        slots[count], fences[count], elements[count], groups[count] = idle[count], fence, head, group
      end
    end
    place(group, now)
    if count == 0 then suspect = nil end
    looks = looks - 1
  until suspect or count == #idle or looks == 0
  if looks == 0 then tell('grouped') end -- there may be more
end

if is_limiting() then
  take_limited_heads()
else
  local best = suspect and { suspect } or call('ZRANGE', FROM.ready, 0, #idle - 1)
  if #best > 0 then
    if not suspect then call('ZREMRANGEBYRANK', FROM.ready, 0, #best - 1) end
    take_heads(best)
  end
end
if count == 0 then return { 'OK', rows, now, mark and 1 or 0 } end
local claims, told_before = { slots = slots, fences = fences, elements = elements, groups = groups }, last
local passed = give(daemon, claims, before, rows, now)
if (ARGV[3] ~= '0' or ARGV[4] ~= '') and not suspect then
  tell_ahead(rows, told_before, tonumber(ARGV[3]), ARGV[4] ~= '' and cjson.decode(ARGV[4]), now)
end
for _, at in ipairs(passed) do
  unlock(groups[at], fences[at], now)
  place_unlocked(groups[at], now)
end
if suspect and count > #passed then mark_suspect(daemon, claims, now) end
count_claims('grouped', count, #passed)
return { 'OK', rows, now, mark and 1 or 0 }
