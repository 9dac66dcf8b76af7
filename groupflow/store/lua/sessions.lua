-- Behind the prelude in every script that acts for a daemon: whether this is still its session, and what a slot's
-- checkpoint says.

-- The pool of a puller, which the store knows as `pool/<pool>/<worker>`; nil for a daemon.
local function pool_of(daemon) return string.match(daemon, '^pool/([^/]+)/') end

-- The zset that says until when a daemon's, or a puller's, lease runs.
local function leases_of(daemon)
  local pool = pool_of(daemon)
  return pool and K.pool_pullers .. pool or K.daemons
end

-- A puller holds so many tasks more, or fewer: so what a pool's workers hold is known without a walk.
local function count_held(daemon, number)
  local pool = number ~= 0 and pool_of(daemon)
  if not pool then return end
  for _, whose in ipairs({ daemon, '' }) do
    local held = call('ZADD', K.pool_holders .. pool, 'INCR', number, whose)
    if tonumber(held) <= 0 then call('ZREM', K.pool_holders .. pool, whose) end
  end
end

-- A daemon runs one quarantined task, a task with crashes, at a time: so the task that kills its daemon again is known,
-- and no other quarantined task dies with it. The daemon's `quarantined` field is the mark of that claim: 16 digits of
-- fence, and 16 of since when (µs) where that is the task's first crash. Then a renewal clears the mark once the claim
-- is a lease old: a task that runs for so long is most likely harmless, and a cluster that lost its power doesn't run
-- hours of tasks one by one. A task with two crashes keeps the mark to the end.
local quarantine -- of the daemon that this script acts for, or false

-- A session is a number and the process that opened it, in this order where a daemon shows its own. A process begins
-- with its birth (see start.lua), by which all partitions agree which of two with one name came later. Only a later
-- process replaces the caller. An earlier one stands here where it found no session: the caller was reaped, or Redis
-- lost what it had written. Nor is the caller replaced where its own process opened another session.
local function session_state(daemon, session)
  local known = call('HMGET', K.daemon .. daemon, 'session', 'process', 'quarantined')
  local number, process = known[1], known[2]
  if not number then return 'EXPIRED' end
  if number .. process ~= session then
    return sub(session, 17) < process and 'REPLACED' or 'EXPIRED'
  end
  quarantine = known[3]
  return 'OK'
end

local function end_quarantine(daemon)
  call('HDEL', K.daemon .. daemon, 'quarantined')
  quarantine = false
end

-- A claim has ended (fence: 16 digits). Where it was the daemon's quarantined task, another one may run.
local function end_quarantine_of(daemon, fence)
  if not quarantine or sub(quarantine, 1, 16) ~= fence then return end
  end_quarantine(daemon)
  if pool_of(daemon) then
    tell('pool')
  elseif call('EXISTS', K.quarantined_plain, K.quarantined_groups) > 0 then
    wake()
  end
end

-- The ids of tasks that a daemon, or a puller, holds and that are to be cancelled.
local function cancels_of(daemon)
  local ids = {}
  for _, checkpoint in ipairs(call('EXISTS', K.cancels) == 1 and call('HVALS', K.worker .. daemon) or {}) do
    local claim = claim_of(checkpoint)
    if claim and cancel_of(id_of(claim.entry)) then ids[#ids + 1] = id_of(claim.entry) end
  end
  return ids
end

-- How far a claim's attempt has got: when its handler said so (µs, 16 digits), and what (JSON); nil if it hasn't.
local function progress_of(claim)
  local said = claim.daemon and call('HGET', K.progress .. claim.daemon, claim.slot)
  return said and sub(said, 1, 16) == claim.fence and sub(said, 17) or nil
end

-- Calls `visit` with the claims of the first thousand daemons, or pullers, whose leases these are.
local function each_claim(leases, visit)
  for _, holder in ipairs(call('ZRANGE', leases, 0, 999)) do
    for _, checkpoint in ipairs(call('HVALS', K.worker .. holder)) do
      local claim = claim_of(checkpoint)
      if claim then visit(claim) end
    end
  end
end

-- Tasks that ran before their tenant had a limit count from now on: of tenants of this name, nil for all.
local function charge_running(name)
  each_claim(K.daemons, function(claim)
    local tenant = call('HEXISTS', K.charged, claim.fence) == 0 and tenants().of(claim.entry)
    if tenant and (not name or sub(tenant, 9) == name) then tenants().charge(tenant, claim.fence) end
  end)
end

-- The limits of types have changed: what runs counts by what they are now, and what waits for them is looked at again.
local function review_caps(now)
  may_limit, limits_made, tenants_made, may_cap, caps_made = true, nil, nil, true, nil
  local function recharge(claim) caps().recharge(claim.fence, claim.fence, claim.entry) end
  each_claim(K.daemons, recharge)
  for _, pool in ipairs(pools()) do each_claim(K.pool_pullers .. pool, recharge) end
  caps().turn_all(now)
end

-- So many claims have ended (group '' of plain tasks); `is_requeued` where their tasks wait again.
local function count_ends(group, number, is_requeued)
  local pool = group == '' and 'plain' or 'grouped'
  call('HINCRBY', K.count, 'running_' .. pool, -number)
  if is_requeued then call('HINCRBY', K.count, 'queued_' .. pool, number) end
end

-- A claim has ended (fence: 16 digits; group '' of a plain task): its lock goes, or what stands in its place.
local function unlock(group, fence, now)
  if not is_limiting() then
    if group ~= '' then call('DEL', K.lock .. group) end
    return
  end
  if group ~= '' then limits().let_go(group, fence) end
  tenants().let_go(fence, now)
  if is_capping() then caps().let_go(fence, now) end
end
