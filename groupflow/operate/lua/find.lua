#!lua flags=no-writes
-- find: all facts about one task in one instant, without its headers and body.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 of a shard of a scan its group
-- returns  now; of a task that is over: ended, its line of the history; result (JSON, see `keep_results`), if it is kept;
--          of one that is there: type, group, tenant, scope, task_state, and died (µs), or what `with_holder` notes of its
--          claim; cancel: who wants it cancelled, and why (JSON), if that is asked for; of a plain task that waits, as
--          `why` says them: of_type and of_tenant, its type's limit and its tenant's; everything_paused, recovering,
--          outbox_full; delayed (µs): when it may start, if it stands aside or
--          is the head of a group that is delayed; start_by (µs), if it has to start in time; pullers: of one of a
--          pool, how many workers' leases run there; corrections (see `redrive.lua`) if it has some;
--          of a shard also held: 'paused' or 'parked' if its group is; context (JSON); aside (µs): until when it stands
--          aside
local id, facts = ARGV[1], { now = clock() }
local task_state = K.task_state .. id
if ARGV[2] then
  facts.held = call('HEXISTS', K.paused, ARGV[2]) == 1 and 'paused'
    or call('HEXISTS', K.parked, ARGV[2]) == 1 and 'parked' or nil
  facts.context = call('HGET', task_state, 'context') or nil
  facts.aside = call('ZSCORE', K.delayed, (call('HGET', task_state, 'sequence') or '') .. '+' .. id) or nil
end
if call('HEXISTS', K.tasks, id) == 0 then
  facts.ended = call('HGET', K.history_new, id) or call('HGET', K.history_old, id) or nil
  facts.result = call('HGET', K.results_new, id) or call('HGET', K.results_old, id) or nil
  return named(facts)
end

-- The claim of the task. A grouped task is found by its group's lock; for a plain one, or one whose group is
-- unknown, the script looks at every slot.
local function claim_of_task(group)
  for _, claim in ipairs(group ~= '' and claims_on(group) or claims(100000)) do
    if claim.entry and id_of(claim.entry) == id then return claim end
  end
  return {}
end

local task_type, tenant, group = facts_of(id)
facts.died = call('ZSCORE', K.dead, id) or nil
local claim = facts.died and {} or claim_of_task(group)
facts.type, facts.group, facts.tenant, facts.scope = task_type, some(group), some(tenant), scope_of(id)
facts.task_state = task_state_of(id)
with_holder(facts, claim, facts.now)
facts.cancel = call('HGET', K.cancels, id) or nil
if group == '' and not facts.died and not claim.daemon then
  local entry = digits(0) .. '.' .. id
  local cap, whose = is_capping() and caps().of(entry), is_limiting() and tenants().of(entry)
  facts.of_type = cap and named(caps().told_of(cap, facts.now)) or nil
  facts.of_tenant = whose and named(figures_of(whose, facts.now)) or nil
  with_holds(facts, facts.now)
end
local head = call('LINDEX', K.lane .. group, -1)
facts.delayed = call('ZSCORE', K.delayed, (call('HGET', task_state, 'sequence') or '') .. '+' .. id)
  or head and id_of(head) == id and call('ZSCORE', K.held, group) or nil
facts.start_by = start_by(id)
facts.pullers = pullers_of(call('HGET', task_state, 'pool') or nil, facts.now)
facts.corrections = call('HGET', task_state, 'corrections') or nil
return named(facts)
