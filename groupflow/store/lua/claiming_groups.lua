-- Behind what claiming means, in `exchange`: which groups the idle slots get.

-- Gives the heads of the ready groups `best`, the best first, to as many slots, each under its group's lock.
local function take_heads(daemon, best, idle, claims)
  local first, holder, lane = take_fences(#best), ' ' .. daemon .. ' ', K.lane
  local locks, told, count = {}, {}, 0
  for i = 1, #best do
    local fence = digits(first + i - 1)
    told[i], locks[2 * i - 1], locks[2 * i] = fence, K.lock .. best[i], fence .. holder .. idle[i]
  end
  local slots, fences, entries, groups = claims.slots, claims.fences, claims.entries, claims.groups
  -- No ready group has a lock. If one has, the script sets each lock by itself.
  local all_locked = call('MSETNX', unpack(locks)) == 1
  for i = 1, #best do
    if all_locked or call('SETNX', locks[2 * i - 1], locks[2 * i]) == 1 then
      local entry = call('RPOP', lane .. best[i])
      if entry then
        count = count + 1
        slots[count], fences[count], entries[count], groups[count] = idle[i], told[i], entry, best[i]
      else
        call('DEL', locks[2 * i - 1])
      end
    end
  end
end

-- The same where there are limits, one by one: a start may end another's turn, or leave its group ready. Places a group
-- that may not start. Returns whether it gave the quarantined task.
local function take_limited_heads(daemon, idle, quarantined, claims, now)
  local looks, count, lane = 2 * #idle + 100, 0, K.lane
  repeat
    local group = quarantined or call('ZRANGE', FROM.ready, 0, 0)[1]
    if not group then return false end
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
      if limits().hold(group, head, fence .. ' ' .. daemon .. ' ' .. idle[count + 1], now) then
        if tenant then tenants().start(tenant, fence, 'g', now) end
        call('RPOP', lane .. group)
        count = count + 1
        claims.slots[count], claims.fences[count] = idle[count], fence
        claims.entries[count], claims.groups[count] = head, group
      end
    end
    place(group, now)
    if count == 0 then quarantined = nil end
    looks = looks - 1
  until quarantined or count == #idle or looks == 0
  if looks == 0 then tell('grouped') end -- there may be more
  return quarantined ~= nil
end

-- The claims, as `give` takes them: of the quarantined task, if any, or of as many groups as there are slots. Also
-- whether it is the quarantined task's.
local function claim_groups(daemon, idle, quarantined, now)
  local claims = { slots = {}, fences = {}, entries = {}, groups = {} }
  if is_limiting() then
    return claims, take_limited_heads(daemon, idle, quarantined, claims, now)
  end
  local best = quarantined and { quarantined } or call('ZRANGE', FROM.ready, 0, #idle - 1)
  if #best > 0 then
    if not quarantined then call('ZREMRANGEBYRANK', FROM.ready, 0, #best - 1) end
    take_heads(daemon, best, idle, claims)
  end
  return claims, quarantined ~= nil
end
