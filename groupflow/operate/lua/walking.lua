-- Behind the session rules in scripts that look at many groups: which run, and which are held.

-- Adds the live claims of a daemon, or of a puller, to others, `most` in all at most; returns how many slots it has.
local function add_claims(found, daemon, most, of_groups)
  local checkpoints = call('HGETALL', K.worker .. daemon)
  for i = 1, #checkpoints, 2 do
    if #found >= most then break end
    local claim = claim_of(checkpoints[i + 1])
    if claim and not (of_groups and claim.group == '') then
      claim.daemon, claim.slot = daemon, checkpoints[i]
      found[#found + 1] = claim
    end
  end
  return #checkpoints / 2
end

-- The live claims, `most` of them at most, over every slot of every daemon and of pullers that hold tasks;
-- `of_groups`: of groups only.
local function claims(most, of_groups)
  local found, looked = {}, 0
  for _, daemon in ipairs(call('ZRANGE', K.daemons, 0, 999)) do add_claims(found, daemon, most, of_groups) end
  for _, pool in ipairs(pools()) do
    for _, puller in ipairs(call('ZRANGE', K.pool_holders .. pool, 0, most)) do
      if #found >= most or looked >= MOST_LOOKED_AT then return found end
      if puller ~= '' then looked = looked + add_claims(found, puller, most, of_groups) end
    end
  end
  return found
end

-- Whether a claim began before another, as `table.sort` takes it.
local function is_earlier(a, b) return a.since .. a.fence < b.since .. b.fence end

-- The claim that a lock, or a holder of `limits`, names; without its entry if the checkpoint says nothing of
-- it.
local function claim_by(lock)
  local slot = string.match(lock, '[^ ]+$')
  local daemon = string.sub(lock, 18, -(#slot + 2))
  local checkpoint = call('HGET', K.worker .. daemon, slot)
  local claim = checkpoint and claim_of(checkpoint) or {}
  claim.fence, claim.daemon, claim.slot = string.sub(lock, 1, 16), daemon, slot
  return claim
end

-- The claims of a group, the first to start first.
local function claims_on(group)
  local lock, found = call('GET', K.lock .. group), {}
  for _, holder in ipairs(limits().holders(group)) do found[#found + 1] = claim_by(holder) end
  if lock then found[#found + 1] = claim_by(lock) end
  return found
end

-- Notes who holds a claim: daemon, worker, fence; since (µs), progress (see `progress_of`), where its checkpoint has it;
-- lease_left and unheard (µs): how long the holder's lease runs still, and how long ago it was last heard of.
local function with_holder(facts, claim, now)
  local daemon = claim.daemon
  if not daemon then return facts end
  local ends, length = call('ZSCORE', leases_of(daemon), daemon), call('HGET', K.daemon .. daemon, 'lease')
  local left = ends and tonumber(ends) - now or 0
  facts.lease_left, facts.unheard = left, math.max(0, (length or left) - left)
  facts.daemon, facts.worker, facts.fence, facts.since = daemon, claim.slot, claim.fence, claim.since
  facts.progress = progress_of(claim)
  return facts
end

-- The first names in a hash.
local function first_in(key, most) return { unpack(names_in(key, 0, most), 1, most) } end

-- Calls `visit` with the first groups of each state that doesn't run, `most` of each at most, and the state.
local function each_waiting_group(most, visit)
  for _, group in ipairs(first_in(K.paused, most)) do visit(group, 'paused') end
  for _, group in ipairs(first_in(K.parked, most)) do visit(group, 'parked') end
  for _, group in ipairs((members_of(READY, 0, most))) do visit(group, 'ready') end
  for _, group in ipairs(first_in(K.waiting_groups, most)) do
    local tenant = sub(call('HGET', K.waiting_groups, group), 2)
    visit(group, call('ZSCORE', K.standing, tenant) and 'delayed' or 'ready')
  end
  for _, group in ipairs(first_in(K.cap_groups, most)) do visit(group, 'ready') end
  for _, group in ipairs(call('ZRANGE', K.held, 0, most - 1)) do visit(group, 'delayed') end
end

-- The longest lanes that `find_longest` knows, and from where it walks on.
local function known_longest() return cjson.decode(call('HGET', K.samples, 'longest') or '{"from":0,"groups":[]}') end

-- Notes what lets nothing be claimed, as `why` and `find` tell it.
local function with_holds(facts, now)
  facts.everything_paused = call('GET', K.paused_all) or nil
  facts.everything_ends = call('ZSCORE', K.resumes, '') or nil
  facts.recovering = recovering(now)
  facts.outbox_full = call('EXISTS', K.outbox_full) == 1 and 1 or nil
  return facts
end
