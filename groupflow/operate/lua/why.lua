#!lua flags=no-writes
-- why: all facts about one group in one instant.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group · 2 '1' where the rule of its head is wanted, else ''
-- returns  { now, queued: waiting in its lane, head: id of the task that runs, or is next, its task state; of a group
--          that runs what `with_holder` notes; ready, pullers: how many workers pull from the pool whose may claim it, if
--          daemons may not; until (µs), parked, paused, everything_paused (JSON), each if it is, and pause_ends,
--          everything_ends (µs) if those pauses end by themselves; recovering: { since, until } (µs) if nothing is
--          claimed, since this server may have lost writes; outbox_full: 1 if nothing is claimed,
--          since the outbox has as many bytes as it may; busy: if its head
--          waits as a quarantined task, the daemons that run another one; running: how many tasks of it; if it has a
--          limit: concurrency, rate (as it was written); and if that sets `until`: limited_by, 'rate', 'closed'
--          or 'batch'; if it waits for its tenant's turn: tenant, as `figures_of` has it; if it waits for the limit of
--          its head's type: type, as `told_of` in `caps.lua` has it; by_hand: until when (µs) the group's limits are by
--          hand; cancel: of a task that runs and is to be cancelled, who wants that (JSON); rule: its head's, where
--          ARGV 2 asks; aside: how many of its delayed tasks hold up no other }
local group = ARGV[1]
local now = clock()
local running = claims_on(group)
local claim = running[1] or {}
local quarantined, busy = call('ZSCORE', K.quarantined_groups, group), {}
local ready, pool = quarantined or call('ZSCORE', K.ready, group), nil
for _, name in ipairs(ready and {} or pools()) do
  local turn = call('ZSCORE', index_of('ready', name), group)
    or call('ZSCORE', index_of('quarantined_groups', name), group)
  if turn then ready, pool = turn, name end
end
for _, daemon in ipairs(quarantined and call('ZRANGE', K.daemons, 0, 999) or {}) do
  if call('HEXISTS', K.daemon .. daemon, 'quarantined') == 1 then busy[#busy + 1] = daemon end
end
local entry = claim.entry or call('LINDEX', K.lane .. group, -1)
local head = entry and id_of(entry) or nil
local next_head = call('LINDEX', K.lane .. group, -1) or entry
local limit, limited_by = {}, nil
if next_head and is_limiting() then
  local free, what = limits().free_at(group, next_head, now)
  limit = limits().of(group, next_head)
  if free and free > now then limited_by = what end
end
local waits_in = call('HGET', K.waiting_groups, group)
-- A group that has the turn of its type may be claimed, or waits for its tenant's.
local capped_by, has_turn, of_type = nil, false, nil
if is_limiting() and is_capping() then capped_by, has_turn = caps().waits_for(group) end
if capped_by and not has_turn then of_type = named(caps().told_of(capped_by, now)) end
return named(with_holds(with_holder({
  now = now, queued = call('LLEN', K.lane .. group), head = head, task_state = head and task_state_of(head) or {},
  cancel = claim.entry and call('HGET', K.cancels, head) or nil,
  ready = ready or nil, pullers = pullers_of(pool, now), ['until'] = call('ZSCORE', K.held, group) or nil,
  parked = call('HGET', K.parked, group) or nil, paused = call('HGET', K.paused, group) or nil,
  busy = busy, pause_ends = call('ZSCORE', K.resumes, group) or nil,
  running = #running, concurrency = limit.concurrency, rate = limit.rate, limited_by = limited_by,
  by_hand = limit.till, type = of_type, tenant = waits_in and named(figures_of(sub(waits_in, 2), now)) or nil,
  aside = tonumber(call('HGET', K.aside, group) or 0),
  rule = ARGV[2] == '1' and next_head and limits().facts_of(next_head) or nil,
}, claim, now), now))
