#!lua flags=no-writes
-- find: all facts about one task in one instant, without its headers and body.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id
-- returns  of a task that is over: ended, its line of the history; of one that is there: now, type, group,
--          tenant, scope, life, and died (µs), or daemon, worker, fence and since (µs) of its claim
local id = ARGV[1]
if call('HEXISTS', K.tasks, id) == 0 then
  return named({ ended = call('HGET', K.history_new, id) or call('HGET', K.history_old, id) or nil })
end

-- The claim of the task. A grouped task is found by its group's lock; for a plain one, or one whose group is
-- unknown, the script looks at every slot.
local function claim_of_task(group)
  for _, claim in ipairs(group ~= '' and claims_on(group) or claims(100000)) do
    if claim.element and id_of(claim.element) == id then return claim end
  end
  return {}
end

local died = call('ZSCORE', K.dead, id) or nil
local task_type, tenant, group = facts_of(id)
local claim = died and {} or claim_of_task(group)
return named({
  now = clock(), type = task_type, group = some(group), tenant = some(tenant), scope = scope_of(id),
  life = life_of(id), died = died,
  daemon = claim.daemon, worker = claim.slot, fence = claim.fence, since = claim.since,
})
